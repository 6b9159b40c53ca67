"""The same training step as a compiled graph, called in a loop."""

import tensorflow as tf

DEFAULT_ITERATIONS = 2500
x = tf.random.normal((256, 256))
y = tf.random.uniform((256,), maxval=10, dtype=tf.int32)
w1 = tf.Variable(tf.random.normal((256, 256), stddev=0.05))
w2 = tf.Variable(tf.random.normal((256, 256), stddev=0.05))
w3 = tf.Variable(tf.random.normal((256, 10), stddev=0.05))
variables = [w1, w2, w3]


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(x, w1)), w2))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.matmul(hidden, w3))
        loss = tf.reduce_mean(losses)
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.01 * gradient)
    return loss


for _ in range(50):
    train_step(x, y)

# measured
total = 0.0
for number in range(ITERATIONS):
    loss = train_step(x, y)
    total += float(loss)
