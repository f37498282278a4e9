// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// One machine with GPUs, as its description says: what the driver of a real one would know. All GPUs are of one model.
// What changes - MIG modes, GPU instances - is kept in a state file, so that the next process sees it.
//
// The description is the file that $LAB_NVML names; lab/driver.py writes it. A line is a word and its values:
//
//   driver VERSION, product NAME, cuda NUMBER (13000 is 13.0), compute MAJOR.MINOR, pci ID, memory BYTES
//   mig 0|1         whether MIG can be switched on
//   reset 0|1       whether a MIG mode comes into effect with a reset alone
//   first-fit 0|1   whether GPU instances are placed from the front (see place in mig.c)
//   slices COUNT    memory slices of a GPU
//   profile INDEX ID SLICES COUNT SMS COPY DECODERS ENCODERS JPEG OFA MIB SIZE share|one|all|none START,START...
//                   INDEX is NVML_GPU_INSTANCE_PROFILE_*, SIZE and START are memory slices, the word is struct profile's media
//   gpu UUID BUS-ID
//
// The state is the file beside it whose name ends in .state:
//
//   mode GPU CURRENT PENDING BUSY
//   instance GPU ID INDEX START COMPUTES BUSY UUID
//                   COMPUTES is 1 once the instance has its compute instance, BUSY 1 when somebody uses it
#ifndef LAB_NVML_MACHINE_H
#define LAB_NVML_MACHINE_H

// The functions are exported by the very names that programs look up: no macro may give them others.
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdbool.h>
#include <stddef.h>

// The bindings' nvml.h makes every handle a structure of one pointer (go-nvml pkg/nvml/nvml.h).
#define HANDLE(type, address) ((type){(void *)(address)})

// Each of a GPU's places for an instance, used or not.
#define EACH_INSTANCE(i, g) (struct instance *i = (g)->instances; i < (g)->instances + MAX_INSTANCES; i++)

enum { MAX_GPUS = 32, MAX_INSTANCES = 16, MAX_STARTS = 16, NAME_SIZE = 96 };

enum media { MEDIA_SHARE, MEDIA_ONE, MEDIA_ALL, MEDIA_NONE };

// A GPU instance profile that the model has. Its index among a machine's profiles is NVML_GPU_INSTANCE_PROFILE_*.
struct profile {
    bool known;
    nvmlGpuInstanceProfileInfo_t info;
    unsigned size; // memory slices
    unsigned starts[MAX_STARTS], start_count;
    enum media media;
};

struct gpu;

// A GPU instance and, once it is made, the one compute instance that fills it: together a MIG device. Its address is the
// handle of all three.
struct instance {
    bool used, computes, busy;
    unsigned id; // from 1 on; 0 is a GPU that is one instance
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

// Reads the description that $LAB_NVML names, and the state beside it. False when it cannot be read or understood; what
// was wrong is then on stderr.
bool machine_read(void);

// Writes the state, so that other processes see it.
nvmlReturn_t machine_write(void);

// The GPU or the instance behind a handle; NULL where there is none.
struct gpu *gpu_of(nvmlDevice_t device);
struct instance *instance_of(const void *handle);

// Copies a string out as NVML does.
nvmlReturn_t answer(char *to, unsigned size, const char *text);

#endif
