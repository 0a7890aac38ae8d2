# There is no GPU on Binder. The software GPU's memory is the container's own, so its device is no larger than what a small
# container has.
c.Aliquot.driver = "softgpu"
c.Aliquot.softgpu_memory = "1GiB"
