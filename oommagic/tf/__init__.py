"""The only room that touches TensorFlow. It never imports it: it looks at what the user imported."""
