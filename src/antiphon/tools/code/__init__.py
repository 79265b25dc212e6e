"""Code that a model writes, run where it can do no harm: sandboxes, containers and the tools that use them."""
