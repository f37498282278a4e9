// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command sim simulates the agents of GPU nodes against a real API server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"lab.invalid/sim/agents"
	"lab.invalid/sim/rules"
)

// The subcommands by name; the default is run.
var commands = map[string]func(arguments []string) error{
	"run":        run,
	"query":      runQueries,
	"config":     validate(pluginConfig),
	"mig-config": validate(migConfig),
	"fit":        fit,
	"autoscale":  autoscale,
	"machines":   runMachines,
}

func main() {
	name, arguments := "run", os.Args[1:]
	if len(arguments) > 0 && arguments[0] != "" && arguments[0][0] != '-' {
		name, arguments = arguments[0], arguments[1:]
	}
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "sim: unknown command %q\n", name)
		os.Exit(2)
	}
	if err := command(arguments); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("sim run", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster whose nodes are simulated")
	scale := flags.Float64("time-scale", 0.05, "factor for all durations, relative to real time")
	lag := flags.Duration("configmap-lag", time.Minute, "delay until a mounted ConfigMap is updated, before scaling")
	migWait := flags.Duration("mig-wait", rules.MIGWait, "how long a MIG manager waits for an operand's pods to terminate, not scaled")
	statusPeriod := flags.Duration("node-status-period", 0, "how often a kubelet writes its node's status, before scaling (10s on a real node; 0: every change immediately)")
	podLogs := flags.String("pod-logs", "", "folder for the logs of pods (default: no logs)")
	containers := flags.String("containers", "", "folder for the containers of driver pods (default: no kubectl exec)")
	health := flags.String("health", "", "address that serves /healthz when the caches are synced")
	workers := flags.Int("workers", 16, "number of nodes that are reconciled in parallel")
	klog.InitFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *scale <= 0 || *lag < 0 || *migWait < 0 || *statusPeriod < 0 || *workers < 1 {
		return errors.New("--time-scale and --workers must be positive, --configmap-lag, --mig-wait and --node-status-period not negative")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	simulator, err := agents.New(config, agents.Options{Scale: *scale, Lag: *lag, MIGWait: *migWait, NodeStatusPeriod: *statusPeriod, PodLogs: *podLogs, Containers: *containers, Workers: *workers})
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

// pluginConfig and migConfig use NVIDIA's own parsers of the device plugin and of mig-parted.
// pluginConfig validates like the plugin in the operator's pods, which always has an MPS root.
func pluginConfig(text string) error {
	_, err := rules.PluginConfig(text, rules.Environment{MPSRoot: "/run/nvidia/mps"})
	return err
}

func migConfig(text string) error {
	_, err := rules.MIGConfigs(text)
	return err
}

// validate returns a command that prints for each file whether a parser accepts it.
func validate(parse func(text string) error) func(files []string) error {
	return func(files []string) error {
		rejected := 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := parse(string(text)); err != nil {
				rejected++
				fmt.Printf("%s: REJECTED %v\n", file, err)
				continue
			}
			fmt.Printf("%s: ok\n", file)
		}
		if rejected > 0 {
			return fmt.Errorf("%d of %d files rejected", rejected, len(files))
		}
		return nil
	}
}

func serve(address string, synced *atomic.Bool) {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !synced.Load() {
			http.Error(w, "not synced", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err := server.ListenAndServe(); err != nil {
		klog.ErrorS(err, "cannot serve /healthz")
		os.Exit(1)
	}
}
