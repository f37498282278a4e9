// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// inventory is what the vCenter has when it starts.
type inventory struct {
	Datacenters []datacenter `json:"datacenters"`

	// uploads is the URL for uploads, if it is not the vCenter's.
	uploads string
}

type datacenter struct {
	Name string `json:"name"`
	// Folders are paths below the folder of VMs.
	Folders  []string  `json:"folders"`
	Clusters []cluster `json:"clusters"`
}

type cluster struct {
	Name string `json:"name"`
	// Datastores are those that all hosts of the cluster share; a name in several clusters is one datastore.
	Datastores []string `json:"datastores"`
	// Pools are resource pools below that of the cluster.
	Pools []string `json:"resource_pools"`
	Hosts []host   `json:"hosts"`
}

type host struct {
	Name string `json:"name"`
	GPUs []gpu  `json:"gpus"`
	// Graphics is the default graphics type, shared or sharedDirect.
	Graphics string         `json:"default_graphics"`
	VIBs     []softwareName `json:"vibs"`
}

// softwareName is an installed package of a host.
type softwareName struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Vendor  string `json:"vendor"`
}

func loadInventory(path string) (*inventory, error) {
	found := &inventory{}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, found); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return found, nil
}

// create makes all objects through the API, as an administrator does.
func (i *inventory) create(service *simulator.Service, center *vCenter, registry *simulator.Registry) error {
	ctx := context.Background()
	client, err := vim25.NewClient(ctx, service)
	if err != nil {
		return err
	}
	if i.uploads != "" { // leases take the host of their URLs from this option
		options := object.NewOptionManager(client, *client.ServiceContent.Setting)
		if err := options.Update(ctx, []types.BaseOptionValue{&types.OptionValue{Key: "vcsim.server.url", Value: i.uploads}}); err != nil {
			return err
		}
	}
	if center.folder, err = os.MkdirTemp("", "vcsim-"); err != nil {
		return err
	}
	root := object.NewRootFolder(client)
	for _, one := range i.Datacenters {
		created, err := root.CreateDatacenter(ctx, one.Name)
		if err != nil {
			return fmt.Errorf("datacenter %s: %w", one.Name, err)
		}
		folders, err := created.Folders(ctx)
		if err != nil {
			return err
		}
		if err := one.createFolders(ctx, folders.VmFolder); err != nil {
			return err
		}
		for _, two := range one.Clusters {
			if err := two.create(ctx, folders.HostFolder, center, registry); err != nil {
				return fmt.Errorf("cluster %s: %w", two.Name, err)
			}
		}
	}
	return nil
}

// createFolders creates the folders with those above them.
func (d datacenter) createFolders(ctx context.Context, root *object.Folder) error {
	made := map[string]*object.Folder{".": root, "": root}
	var ensure func(path string) (*object.Folder, error)
	ensure = func(path string) (*object.Folder, error) {
		if found := made[path]; found != nil {
			return found, nil
		}
		parent, err := ensure(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		made[path], err = parent.CreateFolder(ctx, filepath.Base(path))
		return made[path], err
	}
	for _, path := range d.Folders {
		if _, err := ensure(filepath.Clean(path)); err != nil {
			return fmt.Errorf("folder %s: %w", path, err)
		}
	}
	return nil
}

func (c cluster) create(ctx context.Context, parent *object.Folder, center *vCenter, registry *simulator.Registry) error {
	created, err := parent.CreateCluster(ctx, c.Name, types.ClusterConfigSpecEx{DrsConfig: &types.ClusterDrsConfigInfo{Enabled: types.NewBool(true)}})
	if err != nil {
		return err
	}
	for _, one := range c.Hosts {
		task, err := created.AddHost(ctx, types.HostConnectSpec{HostName: one.Name, UserName: "root", Password: "x"}, true, nil, nil)
		if err != nil {
			return err
		}
		result, err := task.WaitForResult(ctx)
		if err != nil {
			return fmt.Errorf("host %s: %w", one.Name, err)
		}
		ref := result.Result.(types.ManagedObjectReference)
		for _, store := range c.Datastores {
			if err := center.mount(ctx, object.NewHostSystem(created.Client(), ref), store); err != nil {
				return fmt.Errorf("datastore %s: %w", store, err)
			}
		}
		center.addHost(registry, ref, one)
	}
	pool, err := created.ResourcePool(ctx)
	if err != nil {
		return err
	}
	for _, name := range c.Pools {
		if _, err := pool.Create(ctx, name, types.DefaultResourceConfigSpec()); err != nil {
			return fmt.Errorf("resource pool %s: %w", name, err)
		}
	}
	return nil
}

// mount gives a host a datastore; hosts with the same folder share it.
func (c *vCenter) mount(ctx context.Context, system *object.HostSystem, store string) error {
	if c.stores[store] == "" {
		c.stores[store] = filepath.Join(c.folder, store)
		if err := os.Mkdir(c.stores[store], 0o700); err != nil {
			return err
		}
	}
	manager, err := system.ConfigManager().DatastoreSystem(ctx)
	if err != nil {
		return err
	}
	_, err = manager.CreateLocalDatastore(ctx, store, c.stores[store])
	return err
}
