// A stand-in for NVIDIA's bindings of NVML, which need cgo and a C compiler: see pkg/nvml/nvml.go.
module github.com/NVIDIA/go-nvml

go 1.26.0
