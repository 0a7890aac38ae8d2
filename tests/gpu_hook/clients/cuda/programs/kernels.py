"""The GPU code of the client programs: ours, which computes on the software GPU too, and a user's."""

from __future__ import annotations

from pathlib import Path

BUILTINS = (Path(__file__).parents[5] / "gpu_hook" / "builtins.ptx").read_bytes()
# What a compiler makes of `*pointer += 1`; on the software GPU it is accepted and timed, and changes nothing.
INCREMENT = b"""
.version 7.0
.target sm_60
.address_size 64
.visible .entry increment(.param .u64 pointer)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [pointer];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.s32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""
SOURCE = 'extern "C" __global__ void increment(int *pointer) { *pointer += 1; }'
