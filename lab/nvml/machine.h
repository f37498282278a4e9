// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// One machine with GPUs, from a description of the data that a real driver has. All GPUs are of one model. MIG modes and GPU
// instances are stored in a state file for the next process.
//
// $LAB_NVML names the description file, which lab/nvml_files.py writes. Each line is a keyword and its values:
//
//   driver VERSION, product NAME, cuda NUMBER (13000 is 13.0), compute MAJOR.MINOR, pci ID, memory BYTES
//   mig 0|1         whether the GPUs support MIG
//   reset 0|1       whether a MIG mode takes effect only with a reset
//   first-fit 0|1   whether GPU instances are placed from the start of the GPU (see place in mig.c)
//   slices COUNT    memory slices of a GPU
//   profile INDEX ID SLICES COUNT SMS COPY DECODERS ENCODERS JPEG OFA MIB SIZE share|one|all|none START,START...
//                   INDEX is NVML_GPU_INSTANCE_PROFILE_*, SIZE and START are memory slices, the keyword is struct profile's media
//   gpu UUID BUS-ID
//
// The state file has the same name with the suffix .state:
//
//   mode GPU CURRENT PENDING BUSY
//   instance GPU ID INDEX START COMPUTES BUSY UUID
//                   COMPUTES is 1 if the instance has its compute instance, BUSY is 1 if it is in use
#ifndef LAB_NVML_MACHINE_H
#define LAB_NVML_MACHINE_H

// Programs look up the functions by their plain names, so no macro may rename them.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdbool.h>
#include <stddef.h>

// In the bindings' nvml.h every handle is a structure with one pointer (go-nvml pkg/nvml/nvml.h).
#define HANDLE(type, address) ((type){(void *)(address)})

// The maximum number of instances of a GPU, used or not.
#define EACH_INSTANCE(i, g) (struct instance *i = (g)->instances; i < (g)->instances + MAX_INSTANCES; i++)

enum { MAX_GPUS = 32, MAX_INSTANCES = 16, MAX_STARTS = 16, NAME_SIZE = 96 };

enum media { MEDIA_SHARE, MEDIA_ONE, MEDIA_ALL, MEDIA_NONE };

// A GPU instance profile of the model. Its index in the machine's profiles is NVML_GPU_INSTANCE_PROFILE_*.
struct profile {
    bool known;
    nvmlGpuInstanceProfileInfo_t info;
    unsigned size; // memory slices
    unsigned starts[MAX_STARTS], start_count;
    enum media media;
};

struct gpu;

// A GPU instance and, after its creation, the compute instance that fills it: together a MIG device. Its address is the handle
// of all three.
struct instance {
    bool used, computes, busy;
    unsigned id; // starts at 1; 0 is a full GPU
    unsigned profile, start;
    struct gpu *gpu;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
};

struct gpu {
    unsigned index;
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    char bus_id[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
    unsigned mode, pending;
    bool busy;
    struct instance instances[MAX_INSTANCES];
};

struct machine {
    char driver[NAME_SIZE], product[NAME_SIZE];
    int cuda, compute_major, compute_minor;
    unsigned pci_id;
    unsigned long long memory; // bytes
    bool mig, reset, first_fit;
    unsigned slices;
    struct profile profiles[NVML_GPU_INSTANCE_PROFILE_COUNT];
    unsigned gpu_count;
    struct gpu gpus[MAX_GPUS];
};

extern struct machine machine;

// Reads the description and the state. Returns false and prints the reason to stderr if they are missing or invalid.
bool machine_read(void);

// Writes the state for other processes.
nvmlReturn_t machine_write(void);

// The GPU or the instance of a handle; NULL if there is none.
struct gpu *gpu_of(nvmlDevice_t device);
struct instance *instance_of(const void *handle);

// Copies a string to the caller's buffer like NVML.
nvmlReturn_t answer(char *to, unsigned size, const char *text);

#endif
