"""Start a kernel on a node within its Grant. Imports gpu_hook, never gateway."""
