// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Resource is a resource that the plugin registered.
type Resource struct {
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"`
	// TwoError is the error of allocating two devices to one container; empty if it succeeds or there is only one device.
	TwoError string `json:"two_error,omitempty"`
	// Environment and Mounts are those of a container with the first two devices, or with the first if two are rejected.
	Environment map[string]string `json:"environment"`
	Mounts      []string          `json:"mounts"`
	Error       string            `json:"error,omitempty"`
}

// kubelet is the kubelet's side of the device plugin API, for one plugin at a time.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	mutex      sync.Mutex
	registered []Resource
}

func newKubelet() (*kubelet, error) {
	if err := os.MkdirAll(v1beta1.DevicePluginPath, 0o755); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", v1beta1.KubeletSocket)
	if err != nil {
		return nil, err
	}
	k, server := &kubelet{}, grpc.NewServer()
	v1beta1.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	return k, nil
}

func (k *kubelet) reset() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.registered = []Resource{}
}

func (k *kubelet) resources() []Resource {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.registered
}

// Register inspects the resource before it returns.
func (k *kubelet) Register(ctx context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	resource := Resource{Resource: r.ResourceName}
	if err := resource.inspect(ctx, r.Endpoint); err != nil {
		resource.Error = err.Error()
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.registered = append(k.registered, resource)
	return &v1beta1.Empty{}, nil
}

func (o *Resource) inspect(ctx context.Context, endpoint string) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(v1beta1.DevicePluginPath, endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	plugin := v1beta1.NewDevicePluginClient(connection)
	devices, err := plugin.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return err
	}
	list, err := devices.Recv()
	if err != nil {
		return err
	}
	for _, device := range list.Devices {
		o.IDs = append(o.IDs, device.ID)
	}
	slices.Sort(o.IDs)
	if len(o.IDs) == 0 {
		return fmt.Errorf("%s has no device", o.Resource)
	}
	if err := o.allocate(ctx, plugin, 1); err != nil {
		return err
	}
	if len(o.IDs) > 1 {
		if err := o.allocate(ctx, plugin, 2); err != nil {
			o.TwoError = err.Error()
		}
	}
	return nil
}

func (o *Resource) allocate(ctx context.Context, plugin v1beta1.DevicePluginClient, count int) error {
	request := &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: o.IDs[:count]}}}
	result, err := plugin.Allocate(ctx, request)
	if err != nil {
		return err
	}
	container := result.ContainerResponses[0]
	o.Environment, o.Mounts = container.Envs, nil
	for _, mount := range container.Mounts {
		o.Mounts = append(o.Mounts, mount.ContainerPath)
	}
	return nil
}
