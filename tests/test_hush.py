"""What holds back TensorFlow's lines gives the screen back, whoever else is at it."""

from children import run_python


def test_two_threads_that_hold_the_screen_back_give_it_back_as_it_was() -> None:
    told = run_python("""
import os, threading
from oommagic.tf.hush import Hush

screen = os.fstat(2).st_ino
first, second, is_held = Hush(), Hush(), threading.Event()
first.__enter__()
told["held"] = os.fstat(2).st_ino != screen

def hold():
    with second:
        is_held.set()

other = threading.Thread(target=hold)
other.start()
told["both at once"] = is_held.wait(0.2)
first.end()
other.join()
told["given back"] = os.fstat(2).st_ino == screen
""")
    assert told == {"held": True, "both at once": False, "given back": True}
