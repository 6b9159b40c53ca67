"""Training steps of a small dense network, run eagerly."""

import tensorflow as tf

DEFAULT_ITERATIONS = 1200
x = tf.random.normal((256, 128))
y = tf.random.uniform((256,), maxval=10, dtype=tf.int32)
w1 = tf.Variable(tf.random.normal((128, 256), stddev=0.05))
b1 = tf.Variable(tf.zeros(256))
w2 = tf.Variable(tf.random.normal((256, 10), stddev=0.05))
variables = [w1, b1, w2]
for _ in range(20):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2))
    tape.gradient(loss, variables)

# measured
for number in range(ITERATIONS):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
        logits = tf.matmul(hidden, w2)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(variables, gradients):
        variable.assign_sub(0.01 * gradient)
