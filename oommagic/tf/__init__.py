"""The only room that touches TensorFlow, and only the one that the user has imported."""
