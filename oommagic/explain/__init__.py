"""Pure: values in, values out. No clock, no file, no TensorFlow, no drawing."""
