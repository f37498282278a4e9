// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// MIG: modes, profiles, and the GPU instances of a GPU. Behaviour and errors are as documented in nvml.h; a comment names the
// source of what nvml.h leaves open.
#include "machine.h"

#include <stdio.h>
#include <string.h>

static bool on(const struct gpu *g) { return machine.mig && g->mode == NVML_DEVICE_MIG_ENABLE; }

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    struct gpu *g = gpu_of(device);
    if (!g)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!machine.mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = g->mode;
    *pending = g->pending;
    return NVML_SUCCESS;
}

// Up to Ampere a mode change needs a reset, since Hopper it does not (MIG user guide, "Enable MIG Mode"). A mode cannot change
// while instances exist (nvidia-smi: "In use by another client") or the GPU is in use.
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation)
{
    struct gpu *g = gpu_of(device);
    if (!g || mode > NVML_DEVICE_MIG_ENABLE)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!machine.mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *activation = NVML_SUCCESS;
    if (mode == g->mode) {
        g->pending = mode;
        return machine_write();
    }
    for EACH_INSTANCE (i, g)
        if (i->used)
            return NVML_ERROR_IN_USE;
    g->pending = mode;
    if (machine.reset) {
        *activation = NVML_ERROR_RESET_REQUIRED;
        return machine_write();
    }
    if (g->busy) {
        g->pending = g->mode;
        return NVML_ERROR_IN_USE;
    }
    g->mode = mode;
    return machine_write();
}

// Profiles can also be read with MIG off (measured on an H200, driver 580.159.04). Profiles that a model lacks return "not
// supported", which go-nvlib skips.
nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile,
                                                 nvmlGpuInstanceProfileInfo_t *info)
{
    if (!gpu_of(device) || profile >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!machine.mig || !machine.profiles[profile].known)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = machine.profiles[profile].info;
    return NVML_SUCCESS;
}

static unsigned index_of(unsigned id)
{
    unsigned index = 0;
    while (index < NVML_GPU_INSTANCE_PROFILE_COUNT &&
           !(machine.profiles[index].known && machine.profiles[index].info.id == id))
        index++;
    return index;
}

static bool is_free(const struct gpu *g, unsigned start, unsigned size)
{
    if (start + size > machine.slices)
        return false;
    for EACH_INSTANCE (i, (struct gpu *)g)
        if (i->used && start < i->start + machine.profiles[i->profile].size && i->start < start + size)
            return false;
    return true;
}

// The maximum number of media extensions and GPU instances at the same time (MIG user guide, "Supported MIG Profiles"; nvml.h
// at NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME).
static bool may_stand(const struct gpu *g, unsigned profile)
{
    unsigned same = 0;
    enum media new = machine.profiles[profile].media;
    for EACH_INSTANCE (i, (struct gpu *)g) {
        if (!i->used)
            continue;
        enum media other = machine.profiles[i->profile].media;
        same += i->profile == profile;
        if ((new == MEDIA_ONE && other == MEDIA_ONE) || (new == MEDIA_ALL && other != MEDIA_NONE) ||
            (other == MEDIA_ALL && new != MEDIA_NONE))
            return false;
    }
    return same < machine.profiles[profile].info.instanceCount;
}

// The driver's choice among the free positions is not documented. In the MIG user guide's example (`-cgi 9,3g.20gb`) the first
// instance gets 4:4 and the second 0:4: from the end, which is also the order here. Callers must not depend on it, so a
// description can select the opposite order (first-fit).
static bool place(const struct gpu *g, const struct profile *p, unsigned *start)
{
    for (unsigned n = 0; n < p->start_count; n++) {
        *start = p->starts[machine.first_fit ? n : p->start_count - 1 - n];
        if (is_free(g, *start, p->size))
            return true;
    }
    return false;
}

static unsigned unused_id(const struct gpu *g)
{
    unsigned id = 1;
    for EACH_INSTANCE (i, (struct gpu *)g)
        if (i->used && i->id >= id)
            id = i->id + 1;
    return id;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned profile_id, nvmlGpuInstance_t *instance)
{
    struct gpu *g = gpu_of(device);
    unsigned profile = index_of(profile_id), start;
    if (!g || profile == NVML_GPU_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!on(g))
        return NVML_ERROR_NOT_SUPPORTED;
    if (g->busy)
        return NVML_ERROR_IN_USE;
    if (!may_stand(g, profile) || !place(g, &machine.profiles[profile], &start))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    for EACH_INSTANCE (i, g)
        if (!i->used) {
            *i = (struct instance){.used = true, .id = unused_id(g), .profile = profile, .start = start, .gpu = g};
            // The UUID of a real MIG device is a hash; here it contains the position.
            snprintf(i->uuid, sizeof i->uuid, "MIG-%08x-%04x-4000-8000-%012x", g->index, profile, start);
            *instance = HANDLE(nvmlGpuInstance_t, i);
            return machine_write();
        }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    struct instance *i = instance_of(instance.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (i->computes || i->busy)
        return NVML_ERROR_IN_USE;
    i->used = false;
    return machine_write();
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned profile_id, nvmlGpuInstance_t *instances,
                                       unsigned *count)
{
    struct gpu *g = gpu_of(device);
    unsigned profile = index_of(profile_id);
    if (!g || profile == NVML_GPU_INSTANCE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!on(g))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    for EACH_INSTANCE (i, g)
        if (i->used && i->profile == profile)
            instances[(*count)++] = HANDLE(nvmlGpuInstance_t, i);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance)
{
    struct gpu *g = gpu_of(device);
    if (!g)
        return NVML_ERROR_INVALID_ARGUMENT;
    for EACH_INSTANCE (i, g)
        if (i->used && i->id == id) {
            *instance = HANDLE(nvmlGpuInstance_t, i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    struct instance *i = instance_of(instance.handle);
    if (!i)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct profile *p = &machine.profiles[i->profile];
    info->device = HANDLE(nvmlDevice_t, i->gpu);
    info->id = i->id;
    info->profileId = p->info.id;
    info->placement = (nvmlGpuInstancePlacement_t){.start = i->start, .size = p->size};
    return NVML_SUCCESS;
}
