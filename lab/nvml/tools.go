//go:build tools

// Package tools pins the release of NVIDIA's bindings whose nvml.h the library is compiled with.
package tools

import _ "github.com/NVIDIA/go-nvml/pkg/nvml"
