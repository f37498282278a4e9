//go:build tools

package tools

import _ "github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted"
