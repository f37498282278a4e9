// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

//go:build ignore

// Command provider has the vendor's own Terraform resource create, scale, relabel, read and delete a node group.
// It is compiled inside a checkout of github.com/vngcloud/terraform-provider-vngcloud, and prints a line of JSON a step.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/hashicorp/terraform-plugin-sdk/v2/terraform"
	"github.com/vngcloud/terraform-provider-vngcloud/client"
	"github.com/vngcloud/terraform-provider-vngcloud/resource/vks"
)

type step struct {
	Name   string                 `json:"name"`
	Config map[string]interface{} `json:"config"`
}

func main() {
	log.SetOutput(io.Discard)
	var steps []step
	must(json.NewDecoder(os.Stdin).Decode(&steps))
	address := os.Getenv("VKS_VSERVER_URL")
	cloud, err := client.NewClientV2(
		address, address, os.Getenv("VKS_URL"), address,
		os.Getenv("GRN_CLIENT_ID"), os.Getenv("GRN_CLIENT_SECRET"), os.Getenv("VKS_IAM_URL"),
	)
	must(err)
	resource := vks.ResourceClusterNodeGroup()
	var state *terraform.InstanceState
	for _, one := range steps {
		diff := &terraform.InstanceDiff{Destroy: true}
		if one.Config != nil {
			diff, err = resource.SimpleDiff(context.Background(), state, terraform.NewResourceConfigRaw(one.Config), cloud)
			must(err)
		}
		next, problems := resource.Apply(context.Background(), state, diff, cloud)
		if problems.HasError() {
			must(fmt.Errorf("%s: %v", one.Name, problems))
		}
		state = next
		attributes := map[string]string{}
		if state != nil {
			attributes = state.Attributes
		}
		must(json.NewEncoder(os.Stdout).Encode(map[string]interface{}{"name": one.Name, "attributes": attributes}))
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
