"""Cells that must behave the same with the magic and without it.

Each case says in its title what is the same. `before` and `after` run without the magic in both
kernels: to prepare something, and to look at what the cell left.
"""

import sys
from dataclasses import dataclass
from textwrap import dedent

from IPython.core.release import version_info

PYTHON_3_12 = (3, 12)
# To IPython 7, `lines = !command` is wrong syntax on Python 3.12, with the magic and without it.
READS_LINES = int(version_info >= (8,) or sys.version_info < PYTHON_3_12)


@dataclass(frozen=True, slots=True)
class Case:
    """A cell, what to run around it, and how to answer it."""

    title: str
    cell: str
    before: str = ""
    after: str = ""
    answers: tuple[str, ...] = ()
    answers_after: tuple[str, ...] = ()
    interrupt_at: str = ""
    reports: int = 1
    python: tuple[int, int] = (3, 11)
    last_python: tuple[int, int] = (3, 99)


def case(title: str, cell: str, **more: object) -> Case:
    """Make a case from indented text."""
    texts = {key: dedent(v).strip("\n") if isinstance(v, str) else v for key, v in more.items()}
    return Case(title, dedent(cell).strip("\n"), **texts)  # type: ignore[arg-type]


VALUES = (
    case("the last value is shown", "x = 20\nx + 22", after="_, Out[len(In) - 2]"),
    case("a semicolon hides the last value", "1 + 1;", after="print(_, len(In))"),
    case("a last value of None shows nothing", "None", after="print(repr(_))"),
    case("a tuple is one value", "1, 'two', [3]", after="_"),
    case(
        "only the last expression is shown",
        """
        1
        2
        3
        """,
        after="_",
    ),
    case("an assignment shows nothing", "kept = [1, 2, 3]", after="kept"),
    case("a statement after a value hides it", "5\nkept = 6", after="kept"),
    case(
        "the input history holds the cell",
        "first = 1\nsecond = 2",
        after="print(In[-2], _i, _ih[-2])",
    ),
    case("the cell sees its own input", "print(In[-1], len(In), len(_ih), _i)"),
    case("`%history` lists the cell", "remembered = 1", after="%history -l 2"),
    case("`%history` in the cell", "seen = 1\n%history -t -l 3"),
    case("`%rerun` runs the cell before", "%rerun -l 1", before="print('once more')"),
    case("earlier results are at hand", "_ + 2", before="40", after="_, __"),
    case(
        "every expression is shown if IPython is told so",
        """
        1
        'two'
        3.0
        """,
        before="get_ipython().ast_node_interactivity = 'all'",
        after="get_ipython().ast_node_interactivity = 'last_expr'",
    ),
    case(
        "the last assignment is shown if IPython is told so",
        "shown = 3",
        before="%config InteractiveShell.ast_node_interactivity = 'last_expr_or_assign'",
        after="%config InteractiveShell.ast_node_interactivity = 'last_expr'",
    ),
    case(
        "a value with its own HTML",
        """
        class H:
            def _repr_html_(self): return '<b>h</b>'
        H()
        """,
    ),
    case(
        "a value whose repr fails",
        """
        class R:
            def __repr__(self): return 1 / 0
        R()
        """,
    ),
    case(
        "a value whose repr prints",
        """
        class P:
            def __repr__(self):
                print('inside')
                return 'P!'
        P()
        """,
    ),
    case("a long value is wrapped alike", "list(range(300))"),
    case("the underscore of the user stays", "_ = 'mine'\n1", after="_\ndel _"),
)

TEXT = (
    case("a cell of comments alone", "# nothing here\n# nor here", reports=0),
    case("blank lines first", "\n\n\nprint(1)\n1 / 0"),
    case(
        "a comment first",
        """
        # a note
        print(1)
        1 / 0
        """,
    ),
    case("an indented cell", "    a = 1\n    print(a)\n    a"),
    case("a pasted doctest", ">>> a = 2\n>>> for i in range(a):\n...     print(i)\n"),
    case(
        "a cell pasted from IPython",
        """
        In [1]: a = 3

        In [2]: a + 1
        """,
    ),
    case("a text of several lines keeps its blanks", 't = """a\n    b\n\n\tc\n  d"""\nt'),
    case(
        "a docstring in a class keeps its blanks", 'class D:\n    """A.\n\n      B."""\nD.__doc__'
    ),
    case("a text that looks like a magic", 't = """\n%%time\n!ls\n%%oomprofile\n"""\nprint(t)'),
    case("continued lines", "total = 1 + \\\n    2 + \\\n    3\ntotal"),
    case("several statements on one line", "a = 1; b = 2; print(a); a + b"),
    case("tabs and form feeds", "if True:\n\tprint('tab')\n\x0c\nprint('feed')"),
    case("Windows line ends", "a = 1\r\nprint(a)\r\na + 1\r\n"),
    case(
        "names and texts in other scripts",
        """
        naïveté = 'žluťoučký 🐎'
        変数 = 1
        print(naïveté, 変数)
        """,
    ),
    case("an error after wide characters", "a = '変数🐎'; b = '🐎' + 1"),
    case("a lone surrogate", "s = '\\ud800'\nlen(s), ascii(s)"),
    case("a declared encoding", "# -*- coding: latin-1 -*-\nprint('é')"),
    case(
        "`from __future__`",
        """
        from __future__ import annotations
        def f(x: Unknown): ...
        f.__annotations__
        """,
    ),
    case(
        "`from __future__` after a docstring",
        """
        '''Doc.'''
        from __future__ import annotations
        x: No = 1
        print(x)
        """,
    ),
    case(
        "annotated names",
        """
        x: int = 3
        y: str
        print(x, 'y' in globals())
        """,
    ),
    case("a line of 5,000 characters", "print(len([" + "1, " * 1666 + "]))"),
    case(
        "a cell of 2,000 lines", "\n".join(f"v = {n}" for n in range(2000)) + "\nv", after="del v"
    ),
)

OUTPUT = (
    case(
        "streams and displays keep their order",
        """
        import sys
        from IPython.display import display
        print("one", flush=True)
        print("two", file=sys.stderr, flush=True)
        display({"three": 3})
        print("four", end="", flush=True)
        sys.stdout.write(" five\\n")
        "six"
        """,
    ),
    case(
        "a display that is updated",
        """
        from IPython.display import display
        handle = display("at first", display_id="handle")
        print("between")
        handle.update("at last")
        """,
    ),
    case(
        "output cleared at once",
        """
        from IPython.display import clear_output
        print('a')
        clear_output()
        print('b')
        """,
    ),
    case(
        "output cleared by what comes next",
        """
        from IPython.display import clear_output
        print('a')
        clear_output(wait=True)
        print('b')
        """,
    ),
    case(
        "an Output widget takes what is printed in it",
        """
        import ipywidgets
        taken = ipywidgets.Output()
        with taken:
            print("inside")
        taken
        """,
    ),
    case(
        "a widget and what its value sets off",
        """
        import ipywidgets
        slider = ipywidgets.IntSlider(3)
        slider.observe(lambda change: print("now", change["new"]), "value")
        slider.value = 5
        slider
        """,
    ),
    case(
        "logging",
        """
        import logging
        logging.getLogger("mine").warning("careful")
        logging.basicConfig(force=True, format="%(lineno)d %(funcName)s %(message)s")
        logging.getLogger("mine").error("broken")
        """,
        after="logging.getLogger().handlers.clear()",
    ),
    case(
        "a figure drawn inline",
        """
        %matplotlib inline
        import matplotlib.pyplot as plt
        fig, ax = plt.subplots(figsize=(1, 1))
        ax.plot([1, 2]);
        print("before the figure")
        """,
    ),
    case(
        "a figure shown by hand, between prints",
        """
        plt.figure(figsize=(1, 1))
        print('a')
        plt.show()
        print('b')
        """,
        before="%matplotlib inline\nimport matplotlib.pyplot as plt",
    ),
    case(
        "a replaced `sys.stdout`",
        """
        import io, sys
        kept, sys.stdout = sys.stdout, io.StringIO()
        print('hidden')
        """,
        after="hidden, sys.stdout = sys.stdout, kept\nhidden.getvalue()",
    ),
    case(
        "captured output",
        """
        import contextlib, io
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print("caught")
        text.getvalue()
        """,
    ),
    case("a progress line", "for i in range(5):\n    print('\\r', i, end='', flush=True)"),
    case("much output", "for i in range(2000):\n    print(i, 'x' * 50)"),
    case(
        "a warning is shown once, with its line",
        """
        import warnings
        for i in range(3):
            warnings.warn('mind this')
        """,
    ),
    case(
        "an old name is warned about",
        """
        def old():
            import warnings
            warnings.warn('old', DeprecationWarning, 2)

        old()
        """,
    ),
    case("a warning of the compiler is shown once", "text = '\\d'\ntext is 'x'"),
    case("the next cell's text", "get_ipython().set_next_input('print(7)')"),
)

MAGICS = (
    case("a shell command", "!echo from the shell\nprint('after')"),
    case(
        "a shell command's lines as a value",
        "lines = !echo a; echo b\nlines",
        reports=READS_LINES,
    ),
    case("a shell command that fails", "!false\n_exit_code"),
    case("a name in a shell command", "name = 'x y'\n!echo {name} $name"),
    case("a line magic as a value", "where = %pwd\nwhere"),
    case("`%time`", "%time sum(range(10))"),
    case("`%timeit`", "%timeit -n 1 -r 1 pass"),
    case(
        "`%%time` below it",
        """
        %%time
        x = 5
        print(x)
        x + 1
        """,
        after="x",
    ),
    case(
        "`%%time` below it, with an error",
        """
        %%time
        x = 5
        x / 0
        """,
    ),
    case(
        "`%%timeit` below it",
        """
        %%timeit -n 2 -r 1
        x = 5
        print(x)
        """,
    ),
    case(
        "`%%capture` below it",
        """
        %%capture got
        print('kept back')
        1 + 1
        """,
        after="got.stdout",
    ),
    case(
        "`%%bash` below it",
        """
        %%bash
        echo one
        echo two >&2
        """,
    ),
    case("`%%bash` that fails", "%%bash\nexit 3"),
    case(
        "`%%writefile` below it",
        """
        %%writefile note.txt
          one

         two
        """,
        after="open('note.txt').read()",
    ),
    case("`%%javascript` below it", "%%javascript\nconsole.log(1)"),
    case("`%%html` below it", "%%html\n<b>bold</b>"),
    case("`%%prun` below it", "%%prun -q -D profile.bin\nsum([1, 2])", after="!rm profile.bin"),
    case("an unknown line magic", "print('not run')\n%no_such_magic"),
    case("an unknown cell magic", "%%no_such_magic\n1"),
    case(
        "a cell magic that is not first",
        """
        x = 1
        %%time
        x
        """,
    ),
    case("a macro", "%macro -q double 1\nprint(type(double).__name__)"),
    case(
        "`%run` of a script",
        "%run script.py",
        before="""
        %%writefile script.py
        ran = 'yes'
        print(ran, __name__)
        """,
        after="ran",
    ),
    case(
        "`%run` of a script that fails",
        "%run failing.py",
        before="""
        %%writefile failing.py
        def f():
            1 / 0
        f()
        """,
    ),
    case(
        "`%run -i` shares the names",
        """
        base = 20
        %run -i shared.py
        base
        """,
        before="%%writefile shared.py\nbase += 1",
    ),
    case("`%load_ext` in the cell", "%load_ext autoreload\n%autoreload 0"),
    case(
        "`%config` in the cell",
        "%config InlineBackend.figure_format = 'png'\n%config InlineBackend.figure_format",
    ),
    case(
        "`%who` and `%whos`",
        """
        %reset -f
        alone = 1
        %who
        %whos
        """,
    ),
    case(
        "`%xdel`",
        """
        gone = [1]
        %xdel gone
        'gone' in globals()
        """,
    ),
    case(
        "`%env`",
        """
        %env OOM_TEST=7
        import os
        os.environ.pop('OOM_TEST')
        """,
    ),
    case("`%cd`", "%cd /\n%cd -"),
    case("`%alias`", "%alias say echo said\n%say it", after="%unalias say"),
    case(
        "`%store`",
        """
        stored = 3
        %store stored
        %store -d stored
        """,
    ),
    case(
        "help with one question mark",
        """
        def f(a, *, b=2):
            '''Say f.'''

        f?
        """,
    ),
    case(
        "help with two question marks",
        """
        def f(a):
            return a + 1

        f??
        """,
    ),
    case("a search by wildcard", "*int*?"),
    case("automatic call", "/print 'called'"),
    case(
        "a magic that the user makes",
        """
        from IPython.core.magic import register_line_magic
        @register_line_magic
        def shout(line):
            return line.upper()
        %shout hey
        """,
    ),
)

ERRORS = (
    case("an error in the first line", "1 / 0\nprint('never')"),
    case(
        "an error in the last line",
        """
        print('shown')
        x = 1
        [][x]
        """,
    ),
    case(
        "an error deep in functions",
        """
        def outer(n):
            return inner(n) + 1

        def inner(n):
            if n == 0:
                raise ValueError("deep")
            return outer(n - 1)

        outer(2)
        """,
    ),
    case(
        "an error in a function of an earlier cell",
        "early(0)",
        before="def early(n):\n    return 1 / n",
    ),
    case("an error inside a library", "import json\njson.loads('{')"),
    case("an error in a comprehension", "[1 / n for n in (1, 0)]"),
    case(
        "an error in a call over several lines",
        """
        max(
            1,
            1 / 0,
            2,
        )
        """,
    ),
    case(
        "an error in a class body",
        """
        class C:
            a = 1
            b = missing
        """,
    ),
    case(
        "an error in a decorator",
        """
        def d(f):
            raise KeyError('d')

        @d
        def g(): ...
        """,
    ),
    case(
        "an error in a context manager",
        """
        import contextlib
        with contextlib.ExitStack() as s:
            s.callback(print, 'left')
            1 / 0
        """,
    ),
    case(
        "an error in a generator",
        """
        def g():
            yield 1
            raise OSError(2, 'no')

        list(g())
        """,
    ),
    case(
        "an error with a note",
        """
        e = ValueError('noted')
        e.add_note('look here')
        raise e
        """,
    ),
    case("an error in `exec`", "exec('a = 1\\nb = a / 0')"),
    case(
        "an error caused by another",
        """
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise RuntimeError('so') from e
        """,
    ),
    case(
        "an error while handling another",
        """
        try:
            {}['k']
        except KeyError:
            int('x')
        """,
    ),
    case(
        "an error with its cause hidden",
        """
        try:
            {}['k']
        except KeyError:
            raise ValueError('v') from None
        """,
    ),
    case(
        "a group of errors",
        "raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError('k')])])",
    ),
    case(
        "`except*`",
        """
        try:
            raise ExceptionGroup('g', [ValueError(1), KeyError(2)])
        except* ValueError:
            print('taken')
        """,
    ),
    case(
        "an error that draws itself",
        """
        class Drawn(Exception):
            def _render_traceback_(self):
                return ['drawn by hand']

        raise Drawn
        """,
    ),
    case(
        "an error whose text fails",
        """
        class Bad(Exception):
            def __str__(self):
                return 1 / 0

        raise Bad
        """,
    ),
    case(
        "an error that the user's handler takes",
        "1 / 0",
        before="""
        def take(shell, kind, value, tb, tb_offset=None):
            print("taken", kind.__name__, value)
        get_ipython().set_custom_exc((ZeroDivisionError,), take)
        """,
        after="get_ipython().set_custom_exc((), None)",
    ),
    case(
        "an error in plain style",
        """
        def f():
            1 / 0
        f()
        """,
        before="%xmode Plain",
        after="%xmode Context",
    ),
    case(
        "an error in verbose style",
        """
        def f(a):
            1 / a
        f(0)
        """,
        before="%xmode Verbose",
        after="%xmode Context",
    ),
    case("an error in minimal style", "1 / 0", before="%xmode Minimal", after="%xmode Context"),
    case(
        "an error shown by hand",
        """
        import traceback
        try:
            1 / 0
        except ZeroDivisionError:
            traceback.print_exc()
        """,
    ),
    case(
        "an error shown by IPython on request",
        """
        try:
            1 / 0
        except ZeroDivisionError:
            get_ipython().showtraceback()
        """,
    ),
    case("a wrong call", "def f(a): ...\nf(1, 2)"),
    case("a missing name", "print('a')\nno_such_name"),
    case("a missing module", "import no_such_module_anywhere"),
    case("a failed assertion", "assert 1 == 2, 'not equal'"),
    case(
        "too deep a recursion",  # the tracer needs some of the stack: how deep may differ a little
        """
        def down():
            return down()
        try:
            down()
        except RecursionError as error:
            print(type(error), str(error)[:32])
        """,
    ),
    case(
        "a recursion reaches about as deep",
        """
        def depth(n):
            try:
                return depth(n + 1)
            except RecursionError:
                return n

        depth(0) > 940
        """,
    ),
    case("too much memory", "len(bytearray(10**15))"),
    case(
        "`sys.exit`",
        """
        import sys
        print('leaving')
        sys.exit(3)
        """,
    ),
    case("`raise SystemExit`", "raise SystemExit('bye')"),
    case("`exit` that keeps the kernel", "leave = exit\nleave(keep_kernel=True)"),
    case("`KeyboardInterrupt` raised by hand", "raise KeyboardInterrupt('by hand')"),
    case("a bare `BaseException`", "raise BaseException('base')"),
    case("`GeneratorExit`", "raise GeneratorExit"),
    case("wrong syntax", "x = = 1", reports=0),
    case(
        "wrong syntax further down",
        """
        x = 1
        def f(:
            pass
        """,
        reports=0,
    ),
    case("wrong indentation", "if True:\nprint(1)", reports=0),
    case(
        "indentation that does not match",
        """
        if 1:
                a = 1
            b = 2
        """,
        reports=0,
    ),
    case("an open bracket", "print((1,\n2", reports=0),
    case("an open text", "t = '''never\nclosed", reports=0),
    case(
        "wrong syntax that the compiler finds",
        """
        def f():
            x = 1
            global x
        """,
        reports=0,
    ),
    case("`return` outside a function", "print(1)\nreturn 2"),
    case("a null byte", "x = 1\x00", reports=0),
    case("wrong syntax in `exec`", "exec('x = = 1')"),
    case(
        "the debugger after an error",
        """
        def f(inside):
            1 / 0
        f('here')
        """,
        after="%debug",
        answers_after=("p inside", "up", "list", "where", "q"),
    ),
    case(
        "the debugger at an error, by `%pdb`",
        """
        def f(inside):
            1 / 0
        f('here')
        """,
        before="%pdb on",
        answers=("p inside", "where", "q"),
        after="%pdb off",
    ),
    case(
        "what is left of the last error",
        "1 / 0",
        after="import sys\nsys.last_type, sys.last_value, sys.last_traceback.tb_lineno",
    ),
    case(
        "`%tb` after an error",
        """
        def f():
            1 / 0
        f()
        """,
        after="%tb",
    ),
    case(
        "an error in a thread",
        """
        import threading
        t = threading.Thread(target=lambda: 1 / 0)
        t.start()
        t.join()
        """,
    ),
    case(
        "an error in `__del__`",
        """
        class D:
            def __del__(self):
                1 / 0

        d = D()
        del d
        """,
    ),
)

DEBUGGING = (
    case(
        "`breakpoint`",
        """
        x = 1
        breakpoint()
        x = 2
        x = 3
        print(x)
        """,
        answers=("p x", "n", "n", "p x", "c"),
    ),
    case(
        "stepping through a function",
        """
        import pdb
        def f(a):
            b = a + 1
            return b
        pdb.set_trace()
        f(1)
        """,
        answers=("s", "s", "n", "p b", "r", "c"),
        # On 3.11 the debugger leaves the cell by another way: the value is shown first. On 3.13
        # pdb stops on set_trace's own line, by an event that Python leaves out where another tool
        # listens to lines: it stops one line later.
        python=(3, 12),
        last_python=(3, 12),
    ),
    case(
        "leaving the debugger",
        """
        x = 1
        breakpoint()
        x = 2
        print(x)
        """,
        answers=("q",),
    ),
    case(
        "`%%debug` below it",
        """
        %%debug
        x = 1
        x = 2
        """,
        answers=("n", "n", "c"),
    ),
    case(
        "the user's own tracer",
        """
        import sys
        events = []
        def tracer(frame, event, arg):
            events.append((event, frame.f_lineno))
            return tracer
        def traced():
            a = 1
            return a
        def run():
            sys.settrace(tracer)
            traced()
            sys.settrace(None)
        run()
        events
        """,
    ),
    case(
        "a tracer that the user leaves behind",
        """
        import sys
        def mine(frame, event, arg): ...
        sys.settrace(mine)
        """,
        after="""
        left = sys.gettrace()
        sys.settrace(None)
        print(left)
        """,
    ),
    case(
        "tracing switched off",
        """
        import sys
        sys.settrace(None)
        x = 1
        x + 1
        """,
    ),
    case(
        "tracing of threads switched off",
        """
        import threading
        threading.settrace(None)
        x = 1
        x
        """,
    ),
    case(
        "the user's own profiler",
        """
        import sys
        calls = []
        def profiler(frame, event, arg):
            if event == "call":
                calls.append(frame.f_code.co_name)
        def profiled():
            return len("abc")
        def run():
            sys.setprofile(profiler)
            profiled()
            sys.setprofile(None)
        run()
        calls
        """,
    ),
    case(
        "cProfile",
        """
        import cProfile, time
        def work():
            for i in range(3):
                time.sleep(0.1)
        p = cProfile.Profile()
        p.runcall(work)
        # The kernel's own threads are heard too, and muddle the counts.
        heard = {(str(e.code), getattr(e.code, "co_filename", "")) for e in p.getstats()}
        sorted(row for row in heard if "oommagic" in row[1] or "object work at" in row[0])
        """,
    ),
    case(
        "the user's own monitoring tool",
        """
        import sys
        seen = []
        m = sys.monitoring
        tool = next(t for t in range(6) if m.get_tool(t) is None)
        m.use_tool_id(tool, "mine")
        m.register_callback(tool, m.events.LINE, lambda code, line: seen.append(line))
        def watched():
            a = 1
            return a
        m.set_local_events(tool, watched.__code__, m.events.LINE)
        watched()
        m.set_local_events(tool, watched.__code__, 0)
        m.free_tool_id(tool)
        seen
        """,
        python=PYTHON_3_12,
    ),
    case(
        "tracemalloc",
        """
        import tracemalloc
        tracemalloc.start()
        x = bytearray(10**6)
        tracemalloc.stop()
        """,
    ),
    case(
        "the stack that the cell sees",
        "import inspect\n[(f.function, f.lineno) for f in inspect.stack()[:3]]",
    ),
    case(
        "the cell's own frame",
        """
        import sys
        f = sys._getframe()
        f.f_lineno, f.f_code.co_name, f.f_locals is f.f_globals, f.f_code.co_firstlineno
        """,
    ),
)

PYTHON = (
    case(
        "a function's source",
        """
        import inspect
        def f(a):
            # a comment
            return a

        inspect.getsource(f)
        """,
    ),
    case(
        "a class's source",
        """
        import inspect
        class C:
            def m(self):
                return 1

        inspect.getsource(C)
        """,
    ),
    case(
        "a lambda's source",
        """
        import inspect
        g = lambda a: a + 1
        inspect.getsource(g)
        """,
    ),
    case(
        "where a function was written",
        """
        import inspect


        def f(): ...
        inspect.getsourcefile(f), f.__code__.co_firstlineno, f.__module__
        """,
    ),
    case(
        "a function's source later on",
        "def late(a):\n    return a",
        after="import inspect\ninspect.getsource(late)",
    ),
    case(
        "the names of the module",
        "__name__, '__file__' in globals(), locals() is globals(), __doc__",
    ),
    case("`dir()`", "[n for n in dir() if 'oom' in n.lower()]"),
    case("`__builtins__`", "__builtins__ is __import__('builtins')"),
    case(
        "`global` and `nonlocal`",
        """
        def f():
            global made
            made = 1
            def g():
                nonlocal n
                n += 1
            n = 1
            g()
            return n
        f(), made
        """,
    ),
    case(
        "star expressions",
        """
        a, *b = range(4)
        print(*b, sep='-')
        [*b, a], {**{'k': 1}}
        """,
    ),
    case(
        "an assignment in an expression",
        """
        if (n := 10) > 5:
            print(n)
        n
        """,
    ),
    case(
        "`match`",
        """
        match {'a': [1, 2]}:
            case {'a': [x, *rest]}:
                print(x, rest)
            case _:
                print('no')
        """,
    ),
    case(
        "decorators",
        """
        import functools
        @functools.lru_cache
        @functools.wraps(abs)
        def f(x):
            return -x
        f(2), f.__name__
        """,
    ),
    case(
        "class bodies, metaclasses and slots",
        """
        class M(type): ...
        class C(metaclass=M):
            __slots__ = ('a',)
            b: int = 1
            c = [i for i in range(b)]
        C.c, C.__qualname__
        """,
    ),
    case(
        "dataclasses",
        """
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int
            y: int = 2
        P(1)
        """,
    ),
    case(
        "generators",
        """
        def g():
            got = yield 1
            print(got)
            yield from 'ab'
        i = g()
        next(i), i.send('sent'), list(i)
        """,
    ),
    case(
        "a generator that outlives the cell",
        """
        def g():
            print('x')
            yield 1
            print('y')
            yield 2
        g = g()
        next(g)
        """,
        after="next(g)",
    ),
    case(
        "comprehensions",
        "{k: [v for v in range(k)] for k in range(3)}, {*'aab'}, sum(i for i in range(4))",
    ),
    case(
        "`for` … `else`, `while`, `try` … `finally`",
        """
        for i in range(2):
            pass
        else:
            print('else')
        while True:
            try:
                break
            finally:
                print('finally')
        """,
    ),
    case(
        "`del`",
        """
        a = b = 1
        del a
        'a' in globals(), b
        """,
    ),
    case(
        "objects die when they did",
        """
        class A:
            def __del__(self):
                print('gone')
        def f():
            a = A()
        f()
        print('after f')
        a = A()
        a = None
        print('end')
        """,
    ),
    case(
        "objects die when a loop goes on",
        """
        class A:
            def __init__(self, n):
                self.n = n
            def __del__(self):
                print('gone', self.n)
        for n in range(3):
            a = A(n)
            print('made', n)
        del a
        """,
    ),
    case(
        "weak references",
        """
        import weakref
        class A: ...
        a = A()
        r = weakref.ref(a)
        del a
        r()
        """,
    ),
    case(
        "what a hot function held is gone when it returns",
        """
        import gc, time, weakref
        class Held: ...
        def work():
            held = Held()
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass
            return weakref.ref(held)
        gc.disable()
        work()() is None
        """,
        after="gc.enable()",
    ),
    case(
        "the garbage collector switched off",
        """
        import gc
        gc.disable()
        gc.isenabled()
        """,
        after="gc.enable()",
    ),
    case(
        "random numbers",
        "import random\nrandom.random()",
        before="import random\nrandom.seed(1)",
        after="random.random()",
    ),
    case(
        "NumPy's random numbers",
        "np.random.rand()",
        before="import numpy as np\nnp.random.seed(1)",
        after="np.random.rand()",
    ),
    case(
        "pickles",
        """
        import pickle
        class K:
            a = 1
        pickle.loads(pickle.dumps(K())).a
        """,
    ),
    case(
        "context variables",
        """
        import contextvars
        v = contextvars.ContextVar('v', default=0)
        t = v.set(5)
        v.get()
        """,
        after="v.get()",
    ),
    case(
        "a context variable of an earlier cell",
        "v.get()",
        before="""
        import contextvars
        v = contextvars.ContextVar('v', default=0)
        t = v.set(6);
        """,
    ),
    case(
        "decimal's context",
        """
        import decimal
        decimal.getcontext().prec = 5
        decimal.Decimal(1) / 3
        """,
        after="decimal.getcontext().prec = 28",
    ),
    case(
        "doctest",
        """
        def d():
            '''
            >>> d()
            1
            '''
            return 1
        import doctest
        doctest.testmod()
        """,
    ),
    case(
        "a cell that runs another",
        "r = get_ipython().run_cell('inner = 5\\ninner + 1')\nr.result, r.success",
    ),
    case(
        "a cell that runs another with an error",
        "r = get_ipython().run_cell('1 / 0')\nr.success, type(r.error_in_exec).__name__",
    ),
    case("a cell that is transformed by hand", "get_ipython().transform_cell('!ls')"),
    case(
        "a transformer of the syntax tree",
        "3",
        before="""
        import ast
        class T(ast.NodeTransformer):
            def visit_Constant(self, node):
                return ast.copy_location(ast.Constant(node.value * 2), node)
        t = T()
        get_ipython().ast_transformers.append(t)
        """,
        after="get_ipython().ast_transformers.clear()",
    ),
    case("`compile` and `eval`", "eval(compile('[i * 2 for i in range(3)]', '<mine>', 'eval'))"),
    case(
        "a hot loop",
        """
        n = 0
        for i in range(200_000):
            n += i
        n
        """,
    ),
    case(
        "a hot function",
        """
        def f(i):
            j = i + 1
            return j
        sum(f(i) for i in range(50_000))
        """,
    ),
)

AT_ONCE = (
    case(
        "`await`",
        """
        import asyncio
        x = await asyncio.sleep(0, 'slept')
        x
        """,
    ),
    case(
        "`async for` and `async with`",
        """
        import contextlib
        async def a():
            yield 1
            yield 2
        @contextlib.asynccontextmanager
        async def c():
            yield 'c'
        async for i in a():
            print(i)
        async with c() as d:
            print(d)
        [i async for i in a()]
        """,
    ),
    case(
        "an error after `await`",
        """
        import asyncio
        await asyncio.sleep(0)
        1 / 0
        """,
    ),
    case(
        "an error in a coroutine",
        """
        async def f():
            raise LookupError('in f')
        await f()
        """,
    ),
    case(
        "`asyncio.gather`",
        """
        import asyncio
        async def f(n):
            await asyncio.sleep(0)
            return n
        await asyncio.gather(*map(f, range(3)))
        """,
    ),
    case(
        "a coroutine that nobody awaits",
        """
        async def f(): ...
        c = f()
        c.close()
        """,
    ),
    case(
        "`asyncio.run` is refused",
        """
        import asyncio
        async def f(): ...
        c = f()
        try:
            asyncio.run(c)
        finally:
            c.close()
        """,
    ),
    case(
        "a task that goes on after the cell",
        """
        import asyncio
        async def tick():
            await go.wait()
            return 'done'
        go = asyncio.Event()
        task = asyncio.create_task(tick())
        task.done()
        """,
        after="go.set()\nawait task",
    ),
    case(
        "threads",
        """
        import threading
        got = []
        ts = [threading.Thread(target=got.append, args=(i,)) for i in range(4)]
        for t in ts: t.start()
        for t in ts: t.join()
        sorted(got)
        """,
    ),
    case(
        "a thread that goes on after the cell",
        """
        import threading
        go = threading.Event()
        got = []
        def later():
            go.wait()
            got.append('late')
        t = threading.Thread(target=later)
        t.start()
        """,
        after="""
        go.set()
        t.join()
        got
        """,
    ),
    case(
        "a pool of threads",
        """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(2) as p:
            r = list(p.map(abs, [-1, 2]))
        r
        """,
    ),
    case(
        "a pool of processes",
        """
        import multiprocessing
        def double(n):
            return n * 2
        with multiprocessing.get_context('fork').Pool(2) as p:
            r = p.map(double, [1, 2])
        r
        """,
    ),
    case(
        "a fork",
        """
        import os
        pid = os.fork()
        if pid == 0:
            x = 1
            os._exit(7)
        os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        """,
    ),
    case(
        "a child process",
        """
        import subprocess, sys
        subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True).stdout
        """,
    ),
    case(
        "a signal handler and a timer",
        """
        import signal
        def ring(*a):
            raise TimeoutError('rang')
        old = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        while True: pass
        """,
        after="signal.signal(signal.SIGALRM, old);",
    ),
    case("an interrupted loop", "print('ready')\nwhile True: pass", interrupt_at="ready"),
    case(
        "an interrupted sleep",
        """
        import time
        print('ready')
        time.sleep(60)
        """,
        interrupt_at="ready",
    ),
    case(
        "an interrupted `await`",
        """
        import asyncio
        print('ready')
        for step in range(100):
            await asyncio.sleep(0.05)
        """,
        interrupt_at="ready",
    ),
    case(
        "an interrupt that the cell handles",
        """
        print('ready')
        try:
            while True: pass
        except KeyboardInterrupt:
            print('handled')
        'went on'
        """,
        interrupt_at="ready",
    ),
    case(
        "an interrupted shell command",
        """
        !echo ready; sleep 60
        print('next')
        """,
        interrupt_at="ready",
    ),
    case(
        "`input`",
        """
        name = input('Who? ')
        print('Hello', name)
        name
        """,
        answers=("Ada",),
    ),
    case("a password", "import getpass\nlen(getpass.getpass('Secret: '))", answers=("abc",)),
    case("`input` twice, with an error", "a = input()\nint(input(a))", answers=("first", "x")),
)

TAMPERING = (
    case(
        "`print` is another function",
        """
        kept = print
        def print(*a): kept('mine', *a)
        print(1)
        """,
        after="del print",
    ),
    case(
        "`get_ipython` is gone",
        """
        kept = get_ipython
        get_ipython = None
        1 + 1
        """,
        after="get_ipython = kept",
    ),
    case(
        "`get_ipython` is deleted",
        """
        kept = get_ipython
        del get_ipython
        'x'
        """,
        after="get_ipython = kept",
    ),
    case(
        "built-in functions are rebound",
        """
        import builtins
        names = 'abs', 'any', 'divmod', 'id', 'round', 'sorted', 'sum'
        kept = {n: getattr(builtins, n) for n in names}
        for n in kept:
            builtins.__dict__[n] = None
        x = 1
        x += 1
        builtins.__dict__.update(kept)
        len('abc')
        """,
    ),
    case(
        "a clock is rebound",
        """
        import time
        kept = time.perf_counter, time.perf_counter_ns, time.process_time
        time.perf_counter = time.perf_counter_ns = time.process_time = None
        x = 1
        x
        """,
        after="time.perf_counter, time.perf_counter_ns, time.process_time = kept",
    ),
    case(
        "parts of `os` and `sys` are rebound",
        """
        import os, sys
        kept = os.pread, os.lseek, os.getpid, sys._getframe
        os.pread = os.lseek = os.getpid = sys._getframe = None
        x = 1
        x += 1
        os.pread, os.lseek, os.getpid, sys._getframe = kept
        x
        """,
    ),
    case(
        "our modules are thrown out",
        """
        import sys
        for n in list(sys.modules):
            if n.partition('.')[0] == 'oommagic': del sys.modules[n]
        'out'
        """,
    ),
    case(
        "a module is hidden",
        """
        import sys
        kept = sys.modules['json']
        sys.modules['json'] = None
        try:
            import json
        except ImportError as e:
            print(e)
        sys.modules['json'] = kept
        """,
    ),
    case(
        "all of the user's names are cleared",
        """
        for n in [n for n in globals() if not n.startswith('_')]:
            if n not in ('In', 'Out', 'get_ipython', 'exit', 'quit', 'open'): del globals()[n]
        'cleared'
        """,
    ),
    case("`%reset`", "%reset -f", after="'alive'"),
    case(
        "the directory changes",
        """
        import os
        here = os.getcwd()
        os.mkdir('sub')
        os.chdir('sub')
        """,
        after="os.chdir(here)\nos.rmdir('sub')",
    ),
    case(
        "the environment changes",
        "import os\nos.environ['OOM_LEFT'] = '1'",
        after="del os.environ['OOM_LEFT']",
    ),
    case(
        "a limit changes",
        """
        import resource
        was = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (was[0] - 1, was[1]))
        """,
        after="resource.setrlimit(resource.RLIMIT_NOFILE, was)",
    ),
    case(
        "the recursion limit changes",
        """
        import sys
        sys.setrecursionlimit(2000)
        sys.getrecursionlimit()
        """,
        after="sys.setrecursionlimit(3000)",
    ),
    case(
        "the switch interval changes",
        """
        import sys
        was = sys.getswitchinterval()
        sys.setswitchinterval(0.1)
        was
        """,
        after="sys.setswitchinterval(was)",
    ),
    case(
        "hooks change",
        """
        import sys
        kept = sys.excepthook, sys.displayhook
        sys.excepthook = print
        sys.displayhook = print
        'value'
        """,
        after="sys.excepthook, sys.displayhook = kept",
    ),
    case(
        "warning filters change",
        """
        import warnings
        warnings.simplefilter('error', UserWarning)
        warnings.warn('an error now')
        """,
        after="warnings.resetwarnings()",
    ),
    case(
        "a file stays open",
        "f = open('open.txt', 'w')\nf.write('x');",
        after="""
        f.close()
        import os
        os.remove('open.txt')
        """,
    ),
    case(
        "events of IPython",
        "def heard(*a): print('heard')\nget_ipython().events.register('post_execute', heard)",
        after="get_ipython().events.unregister('post_execute', heard)",
    ),
    case(
        "an event that ends the cell",
        "1 + 1",
        before="""
        def heard(info): print('before the cell')
        get_ipython().events.register('pre_run_cell', heard)
        """,
        after="get_ipython().events.unregister('pre_run_cell', heard)",
    ),
    case(
        "`sys.path` and modules of the directory",
        """
        import sys
        sys.path.insert(0, '')
        import beside
        beside.value
        """,
        before="%%writefile beside.py\nvalue = 8",
        after="sys.path.pop(0);",
    ),
    case(
        "a module reloaded",
        "import importlib, beside2\nimportlib.reload(beside2).value",
        before="%%writefile beside2.py\nvalue = 9",
    ),
    case(
        "the user's last value is rebound",
        """
        import builtins
        builtins._ = 'translated'
        1
        """,
        after="del builtins._",
    ),
    case(
        "`display` is rebound",
        """
        kept = display
        display = None
        2
        """,
        after="display = kept",
    ),
)

TENSORFLOW = (
    case("eager operations", "x = tf.ones((3, 3))\ntf.reduce_sum(x @ x)"),
    case(
        "AutoGraph on a function of the cell",
        """
        @tf.function
        def count(n):
            total = tf.constant(0)
            for i in tf.range(n):
                if i % 2 == 0:
                    total += i
                else:
                    total -= 1
            return total
        count(tf.constant(10)).numpy()
        """,
    ),
    case(
        "AutoGraph's own text",
        """
        def f(x):
            if x > 0:
                x = x * 2
            return x
        print(tf.autograph.to_code(f))
        """,
    ),
    case(
        "a graph that a later cell traces",
        """
        @tf.function
        def late(n):
            while n > 0:
                n -= 1
            return n
        """,
        after="late(tf.constant(3)).numpy()",
    ),
    case(
        "a Python side effect happens at tracing alone",
        """
        @tf.function
        def f(x):
            print('traced')
            return x + 1
        for i in range(3):
            f(tf.constant(i))
        """,
    ),
    case(
        "an error in a graph",
        """
        @tf.function
        def f(x):
            y = x + 1
            tf.debugging.assert_less(y, 1)
            return y
        f(tf.constant(5))
        """,
    ),
    case(
        "an error at tracing",
        """
        @tf.function
        def f(x):
            y = tf.ones((2, 3))
            return x @ y
        f(tf.ones((2, 2, 2, 5)))
        """,
    ),
    case("an error in an eager operation", "tf.ones((2, 3)) @ tf.ones((2, 3))"),
    case(
        "a gradient",
        """
        x = tf.Variable(3.0)
        with tf.GradientTape() as tape:
            y = x * x
        tape.gradient(y, x).numpy()
        """,
    ),
    case(
        "a model that trains",
        """
        tf.keras.utils.set_random_seed(0)
        model = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        fitted = model.fit(tf.ones((8, 4)), tf.zeros((8, 1)), epochs=2, batch_size=4, verbose=0)
        [round(v, 5) for v in fitted.history["loss"]]
        """,
    ),
    case(
        "a custom layer",
        """
        class Twice(tf.keras.layers.Layer):
            def call(self, x):
                if tf.reduce_sum(x) > 0:
                    return x * 2
                return x
        model = tf.keras.Sequential([Twice()])
        model.predict(tf.ones((1, 2)), verbose=0)
        """,
    ),
    case(
        "a data pipeline with the cell's function",
        """
        def double(x):
            return x * 2
        list(tf.data.Dataset.range(4).map(double).batch(2).as_numpy_iterator())
        """,
    ),
    case(
        "`tf.py_function`",
        """
        def plain(x):
            return x.numpy() + 1
        tf.py_function(plain, [tf.constant(1)], tf.int32)
        """,
    ),
    case(
        "TensorFlow's random numbers",
        "tf.random.uniform(()).numpy() == first",
        before="""
        tf.random.set_seed(1)
        first = tf.random.uniform(()).numpy()
        tf.random.set_seed(1)
        """,
    ),
    case(
        "a model's summary",
        """
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(2, name='d')], name='m')
        model.summary()
        """,
    ),
)

CASES = (
    *VALUES,
    *TEXT,
    *OUTPUT,
    *MAGICS,
    *ERRORS,
    *DEBUGGING,
    *PYTHON,
    *AT_ONCE,
    *TAMPERING,
)
