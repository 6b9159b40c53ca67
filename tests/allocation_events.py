"""What children need to read TensorFlow's own account of every allocation, without our reader."""

ALLOCATION_EVENTS = """
import glob, tempfile
import numpy as np
import tensorflow as tf
import keras
from keras import layers
from tensorflow.tsl.profiler.protobuf import xplane_pb2

def allocations(run):
    '''Run, and give every allocation and free in their order: whether it is one, its facts.'''
    folder = tempfile.mkdtemp()
    options = tf.profiler.experimental.ProfilerOptions(2, 0, 0)
    tf.profiler.experimental.start(folder, options)
    run()
    tf.profiler.experimental.stop()
    space = xplane_pb2.XSpace()
    (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
    space.ParseFromString(open(path, "rb").read())
    (plane,) = [plane for plane in space.planes if plane.name == "/host:CPU"]
    names = {number: entry.name for number, entry in plane.stat_metadata.items()}
    events = []
    for line in plane.lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            if name in ("MemoryAllocation", "MemoryDeallocation"):
                stats = {}
                for stat in event.stats:
                    value = getattr(stat, stat.WhichOneof("value"))
                    is_text = stat.WhichOneof("value") == "ref_value"
                    stats[names[stat.metadata_id]] = names[value] if is_text else value
                began = line.timestamp_ns * 1000 + event.offset_ps
                events.append((began, name == "MemoryAllocation", stats))
    events.sort(key=lambda event: event[0])
    return [(is_allocation, stats) for _, is_allocation, stats in events]

def living(events):
    '''Give what is still there, by its address.'''
    live = {}
    for is_allocation, stats in events:
        if is_allocation:
            live[stats["addr"]] = stats
        else:
            live.pop(stats.get("addr"), None)
    return live
"""
