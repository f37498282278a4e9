//go:build tools

// Package tools pins the release of NVIDIA's bindings that provides nvml.h for the library.
package tools

import _ "github.com/NVIDIA/go-nvml/pkg/nvml"
