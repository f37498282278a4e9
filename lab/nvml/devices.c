// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// NVML's functions for a machine and its GPUs. Behaviour and errors are as documented in nvml.h; a comment names the source of
// what nvml.h leaves open. Only the functions that gpu-feature-discovery, nvidia-device-plugin and nvidia-mig-parted call are
// implemented.
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static unsigned initialised;

nvmlReturn_t nvmlInit_v2(void)
{
    if (initialised == 0 && !machine_read())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    initialised++;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

nvmlReturn_t nvmlShutdown(void)
{
    if (initialised == 0)
        return NVML_ERROR_UNINITIALIZED;
    initialised--;
    return NVML_SUCCESS;
}

// The texts are those of the real library, driver 580.159.04.
const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_IN_USE:
        return "In use by another client";
    case NVML_ERROR_INSUFFICIENT_RESOURCES:
        return "Insufficient Resources";
    default:
        return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return answer(version, length, machine.driver);
}

// NVML's version consists of the CUDA major version and the driver version (measured on an H200: 13.580.159.04).
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[2 * NAME_SIZE];
    snprintf(text, sizeof text, "%d.%s", machine.cuda / 1000, machine.driver);
    return answer(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = machine.cuda;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = machine.gpu_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (index >= machine.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = HANDLE(nvmlDevice_t, &machine.gpus[index]);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    for (struct gpu *g = machine.gpus; g < machine.gpus + machine.gpu_count; g++)
        if (!strcmp(g->uuid, uuid)) {
            *device = HANDLE(nvmlDevice_t, g);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

// NVML prints the domain with eight digits, sysfs with four; both are accepted.
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    for (struct gpu *g = machine.gpus; g < machine.gpus + machine.gpu_count; g++)
        if (!strcasecmp(g->bus_id, bus_id) || !strcasecmp(g->bus_id + 4, bus_id)) {
            *device = HANDLE(nvmlDevice_t, g);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    return gpu_of(device) ? answer(name, length, machine.product) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    struct gpu *g = gpu_of(device);
    struct instance *i = instance_of(device.handle);
    if (!g && !i)
        return NVML_ERROR_INVALID_ARGUMENT;
    return answer(uuid, length, g ? g->uuid : i->uuid);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    struct gpu *g = gpu_of(device);
    if (!g)
        return NVML_ERROR_INVALID_ARGUMENT;
    *minor = g->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) { return nvmlDeviceGetMinorNumber(device, index); }

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    if (!gpu_of(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = machine.compute_major;
    *minor = machine.compute_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct instance *i = instance_of(device.handle);
    if (!i && !gpu_of(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    memory->total = i ? machine.profiles[i->profile].info.memorySizeMB << 20 : machine.memory;
    memory->free = memory->total;
    memory->used = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    struct gpu *g = gpu_of(device);
    if (!g)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    strcpy(pci->busId, g->bus_id);
    strcpy(pci->busIdLegacy, g->bus_id + 4);
    sscanf(g->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    pci->pciDeviceId = machine.pci_id << 16 | 0x10de; // device id in the upper half: mig-parted pkg/types/device.go
    return NVML_SUCCESS;
}

// No GPU of the lab is connected to a multi-node NVLink fabric: all fields are zero (measured on an H200, driver
// 580.159.04), which means NVML_GPU_FABRIC_STATE_NOT_SUPPORTED.
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *fabric)
{
    if (!gpu_of(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(fabric, 0, sizeof *fabric);
    return NVML_SUCCESS;
}
