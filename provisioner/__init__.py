"""From a Grant to a running kernel on a node. Imports gpu_hook, never gateway."""
