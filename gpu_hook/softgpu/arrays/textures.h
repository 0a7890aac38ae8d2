/* Texture and surface objects and texture references: what a program bound to what. Nothing samples them: compiled GPU
 * code is timed, not executed. */
#ifndef SOFTGPU_TEXTURES_H
#define SOFTGPU_TEXTURES_H

#include "driver/contexts.h"

/* With the context go its objects and references. */
void textures_close_all(struct context *context);

/* CUDA_SUCCESS when an array, or memory at this address, of this format and these extents can be read as a texture. */
CUresult texture_check_resource(const CUDA_RESOURCE_DESC *resource, CUdevice device);

#endif
