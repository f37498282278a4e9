// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"lab.invalid/sim/autoscaler"
	"lab.invalid/sim/machines"
)

// runMachines simulates OpenShift's Machine API and cluster autoscaler.
func runMachines(arguments []string) error {
	flags := flag.NewFlagSet("sim machines", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster")
	scale := flags.Float64("time-scale", 0.05, "factor for all durations, relative to real time")
	release := flags.String("release", "4.18", "OpenShift release whose autoscaler is simulated")
	cloud := flags.String("cloud", "", "JSON file with the platform and the hardware of its instance types")
	settings := flags.String("settings", "", "JSON file with the faults and settings of the lab's clouds")
	virtual := flags.String("virtual-machines", "", "JSON file with the virtual machines of the simulated vCenter (default: machines are simulated)")
	health := flags.String("health", "", "address that serves /healthz when the caches are synced")
	workers := flags.Int("workers", 8, "number of machines that are reconciled in parallel")
	klog.InitFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *scale <= 0 || *workers < 1 {
		return errors.New("--time-scale and --workers must be positive")
	}
	rules, err := autoscaler.RulesOf(*release)
	if err != nil {
		return err
	}
	loaded, err := machines.LoadCloud(*cloud)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	simulator, err := machines.New(config, machines.Options{Scale: *scale, Cloud: loaded, Rules: rules, Settings: *settings, VirtualMachines: *virtual, Workers: *workers})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var synced atomic.Bool
	if *health != "" {
		go serve(*health, &synced)
	}
	return simulator.Run(ctx, func() { synced.Store(true) })
}
