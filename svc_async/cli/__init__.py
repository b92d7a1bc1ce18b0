"""The command svc-async.

What one may type stands in `app` and `options`, which load in a blink; what is done then stands in one module a
command, loaded when it is called for. Results go to stdout, all that is said to people goes to stderr.
"""
