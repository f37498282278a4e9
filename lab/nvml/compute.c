// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Compute instances and their MIG devices. In the lab a compute instance always fills its GPU instance; smaller ones
// (1c.3g.40gb), which real GPUs support, return "not supported".
#include "machine.h"

static const unsigned slices_of[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {
    [NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE] = 1, [NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE] = 2,
    [NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE] = 3, [NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE] = 4,
    [NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE] = 6, [NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE] = 7,
    [NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE] = 8,
};

static const nvmlGpuInstanceProfileInfo_t *profile_of(const struct instance *i)
{
    return &machine.profiles[i->profile].info;
}

// The compute instance profile of an instance: the one with the same number of slices. These numbers are also the ids of
// `nvidia-smi mig -lcip` (MIG user guide, "Compute Instance Profiles").
static unsigned compute_profile(const struct instance *i)
{
    unsigned profile = 0;
    while (slices_of[profile] != profile_of(i)->sliceCount)
        profile++;
    return profile;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned profile, unsigned engine,
                                                          nvmlComputeInstanceProfileInfo_t *info)
{
    struct instance *i = instance_of(instance.handle);
    if (!i || profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engine >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (profile != compute_profile(i))
        return NVML_ERROR_NOT_SUPPORTED;
    const nvmlGpuInstanceProfileInfo_t *of = profile_of(i);
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = profile,
        .sliceCount = of->sliceCount,
        .instanceCount = 1,
        .multiprocessorCount = of->multiprocessorCount,
        .sharedCopyEngineCount = of->copyEngineCount,
        .sharedDecoderCount = of->decoderCount,
        .sharedEncoderCount = of->encoderCount,
        .sharedJpegCount = of->jpegCount,
        .sharedOfaCount = of->ofaCount,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned profile,
                                                  nvmlComputeInstance_t *compute)
{
    struct instance *i = instance_of(instance.handle);
    if (!i || profile != compute_profile(i))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (i->computes)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    i->computes = true;
    *compute = HANDLE(nvmlComputeInstance_t, i);
    return machine_write();
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    struct instance *i = instance_of(compute.handle);
    if (!i || !i->computes)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (i->busy || i->gpu->busy)
        return NVML_ERROR_IN_USE;
    i->computes = false;
    return machine_write();
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned profile,
                                                nvmlComputeInstance_t *computes, unsigned *count)
{
    struct instance *i = instance_of(instance.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = i->computes && profile == compute_profile(i);
    if (*count)
        *computes = HANDLE(nvmlComputeInstance_t, i);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                   nvmlComputeInstance_t *compute)
{
    struct instance *i = instance_of(instance.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!i->computes || id != 0)
        return NVML_ERROR_NOT_FOUND;
    *compute = HANDLE(nvmlComputeInstance_t, i);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info)
{
    struct instance *i = instance_of(compute.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlComputeInstanceInfo_t){
        .device = HANDLE(nvmlDevice_t, i->gpu),
        .gpuInstance = HANDLE(nvmlGpuInstance_t, i),
        .profileId = compute_profile(i),
        .placement = {.size = profile_of(i)->sliceCount},
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is)
{
    *is = instance_of(device.handle) != NULL;
    return *is || gpu_of(device) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

// The maximum number of instances of the smallest profile, if MIG is on.
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    struct gpu *g = gpu_of(device);
    if (!g)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (unsigned p = 0; machine.mig && g->mode && p < NVML_GPU_INSTANCE_PROFILE_COUNT; p++)
        if (machine.profiles[p].known && machine.profiles[p].info.instanceCount > *count)
            *count = machine.profiles[p].info.instanceCount;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
    struct gpu *g = gpu_of(device);
    if (!g)
        return NVML_ERROR_INVALID_ARGUMENT;
    for EACH_INSTANCE (i, g)
        if (i->used && i->computes && index-- == 0) {
            *mig = HANDLE(nvmlDevice_t, i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    struct instance *i = instance_of(mig.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = HANDLE(nvmlDevice_t, i->gpu);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned *id)
{
    struct instance *i = instance_of(mig.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = i->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned *id)
{
    if (!instance_of(mig.handle))
        return NVML_ERROR_INVALID_ARGUMENT;
    *id = 0;
    return NVML_SUCCESS;
}

// Not supported for a full GPU (measured on an H200, driver 580.159.04).
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes)
{
    struct instance *i = instance_of(mig.handle);
    if (!i)
        return gpu_of(mig) ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT;
    const nvmlGpuInstanceProfileInfo_t *of = profile_of(i);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = of->multiprocessorCount,
        .sharedCopyEngineCount = of->copyEngineCount,
        .sharedDecoderCount = of->decoderCount,
        .sharedEncoderCount = of->encoderCount,
        .sharedJpegCount = of->jpegCount,
        .sharedOfaCount = of->ofaCount,
        .gpuInstanceSliceCount = of->sliceCount,
        .computeInstanceSliceCount = of->sliceCount,
        .memorySizeMB = of->memorySizeMB,
    };
    return NVML_SUCCESS;
}
