//go:build tools

package tools

import (
	_ "github.com/openshift/cluster-nfd-operator"
)
