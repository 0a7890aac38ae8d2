# There is no GPU on Binder. The software GPU's memory is the container's own: its device is no larger than what a
# small container has.
c = get_config()  # noqa: F821  # Jupyter provides it
c.Aliquot.driver = "softgpu"
c.Aliquot.softgpu_memory = "1GiB"
