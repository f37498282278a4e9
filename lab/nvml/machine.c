// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// The machine's description and state: text lines with a keyword and its values (listed in machine.h).
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine machine;

static bool is_gpu(unsigned index) { return index < machine.gpu_count; }

static bool read_starts(struct profile *profile, char *text)
{
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (profile->start_count == MAX_STARTS)
            return false;
        profile->starts[profile->start_count++] = (unsigned)strtoul(word, NULL, 10);
    }
    return profile->start_count > 0;
}

static bool read_media(struct profile *profile, const char *text)
{
    static const char *const words[] = {"share", "one", "all", "none"};
    for (unsigned media = 0; media < sizeof words / sizeof *words; media++)
        if (!strcmp(words[media], text)) {
            profile->media = (enum media)media;
            return true;
        }
    return false;
}

static bool read_profile(const char *line)
{
    struct profile p = {.known = true};
    nvmlGpuInstanceProfileInfo_t *i = &p.info;
    unsigned index;
    char media[8], starts[64];
    int got = sscanf(line, "profile %u %u %u %u %u %u %u %u %u %u %llu %u %7s %63s", &index, &i->id, &i->sliceCount,
                     &i->instanceCount, &i->multiprocessorCount, &i->copyEngineCount, &i->decoderCount,
                     &i->encoderCount, &i->jpegCount, &i->ofaCount, &i->memorySizeMB, &p.size, media, starts);
    if (got != 14 || index >= NVML_GPU_INSTANCE_PROFILE_COUNT || !read_media(&p, media) || !read_starts(&p, starts))
        return false;
    machine.profiles[index] = p;
    return true;
}

static bool read_gpu(const char *line)
{
    struct gpu g = {.index = machine.gpu_count};
    if (machine.gpu_count == MAX_GPUS || sscanf(line, "gpu %95s %31s", g.uuid, g.bus_id) != 2)
        return false;
    machine.gpus[machine.gpu_count++] = g;
    return true;
}

static bool read_mode(const char *line)
{
    unsigned index, mode, pending, busy;
    if (sscanf(line, "mode %u %u %u %u", &index, &mode, &pending, &busy) != 4 || !is_gpu(index))
        return false;
    machine.gpus[index].mode = mode;
    machine.gpus[index].pending = pending;
    machine.gpus[index].busy = busy;
    return true;
}

static bool read_instance(const char *line)
{
    struct instance read = {.used = true};
    unsigned index, computes, busy;
    int got = sscanf(line, "instance %u %u %u %u %u %u %95s", &index, &read.id, &read.profile, &read.start, &computes,
                     &busy, read.uuid);
    if (got != 7 || !is_gpu(index) || read.profile >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return false;
    read.computes = computes;
    read.busy = busy;
    read.gpu = &machine.gpus[index];
    for EACH_INSTANCE (i, read.gpu)
        if (!i->used) {
            *i = read;
            return true;
        }
    return false;
}

static bool read_flag(const char *line, const char *word, bool *flag)
{
    size_t length = strlen(word);
    if (strncmp(line, word, length) || line[length] != ' ')
        return false;
    *flag = line[length + 1] == '1';
    return true;
}

static bool read_line(const char *line)
{
    return read_profile(line) || read_gpu(line) || read_mode(line) || read_instance(line) ||
           read_flag(line, "mig", &machine.mig) || read_flag(line, "reset", &machine.reset) ||
           read_flag(line, "first-fit", &machine.first_fit) || sscanf(line, "driver %95s", machine.driver) == 1 ||
           sscanf(line, "product %95[^\n]", machine.product) == 1 || sscanf(line, "cuda %d", &machine.cuda) == 1 ||
           sscanf(line, "compute %d.%d", &machine.compute_major, &machine.compute_minor) == 2 ||
           sscanf(line, "pci %x", &machine.pci_id) == 1 || sscanf(line, "memory %llu", &machine.memory) == 1 ||
           sscanf(line, "slices %u", &machine.slices) == 1;
}

static bool read_file(const char *path)
{
    char line[512];
    bool understood = true;
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    while (understood && fgets(line, sizeof line, file))
        understood = read_line(line);
    fclose(file);
    if (!understood)
        fprintf(stderr, "libnvidia-ml of the lab: %s: cannot be understood: %s", path, line);
    return understood;
}

static const char *state_path(void)
{
    static char path[512];
    const char *description = getenv("LAB_NVML");
    snprintf(path, sizeof path, "%s.state", description ? description : "");
    return path;
}

bool machine_read(void)
{
    const char *description = getenv("LAB_NVML");
    memset(&machine, 0, sizeof machine);
    return description && read_file(description) && read_file(state_path());
}

nvmlReturn_t machine_write(void)
{
    FILE *file = fopen(state_path(), "w");
    if (!file)
        return NVML_ERROR_NO_PERMISSION;
    for (struct gpu *g = machine.gpus; g < machine.gpus + machine.gpu_count; g++) {
        fprintf(file, "mode %u %u %u %u\n", g->index, g->mode, g->pending, g->busy);
        for EACH_INSTANCE (i, g)
            if (i->used)
                fprintf(file, "instance %u %u %u %u %u %u %s\n", g->index, i->id, i->profile, i->start, i->computes,
                        i->busy, i->uuid);
    }
    return fclose(file) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

struct gpu *gpu_of(nvmlDevice_t device)
{
    for (struct gpu *g = machine.gpus; g < machine.gpus + machine.gpu_count; g++)
        if ((const void *)device.handle == g)
            return g;
    return NULL;
}

struct instance *instance_of(const void *handle)
{
    for (struct gpu *g = machine.gpus; g < machine.gpus + machine.gpu_count; g++)
        for EACH_INSTANCE (i, g)
            if (i == handle && i->used)
                return i;
    return NULL;
}

nvmlReturn_t answer(char *to, unsigned size, const char *text)
{
    if (strlen(text) + 1 > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}
