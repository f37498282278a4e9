module lab.invalid/nvml

go 1.26.0

require github.com/NVIDIA/go-nvml v0.13.0-1.0.20260212130905-92cf8c963449
