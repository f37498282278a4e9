// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lab.invalid/sim/driverpod"
	"lab.invalid/sim/rules"
)

// mountRetry is how often the kubelet retries to mount a volume.
const mountRetry = 2 * time.Second

// licensePaths are the files that the script of the driver container copies when it starts the driver (nvidia-driver of
// NVIDIA/gpu-driver-container), by the path at which the operator mounts them (applyLicensingConfig of NVIDIA/gpu-operator).
var licensePaths = map[string]string{
	"/drivers/gridd.conf": driverpod.ConfigPath,
	"/drivers/ClientConfigToken/client_configuration_token.tok": driverpod.TokenPath,
}

// licenseVolume is the Secret or ConfigMap with the license files of a driver pod.
type licenseVolume struct {
	Volume string
	// One of both is set if the pod has such a volume.
	Secret, ConfigMap string
	// Keys are the keys of the files, by their path in the container.
	Keys map[string]string
}

// licenseVolumeOf returns the volume of the license files; each is mounted by a subPath, so that it never changes in a running
// container.
func licenseVolumeOf(p *corev1.Pod, main *corev1.Container) licenseVolume {
	found := licenseVolume{Keys: map[string]string{}}
	for _, mount := range main.VolumeMounts {
		path, known := licensePaths[mount.MountPath]
		if !known {
			continue
		}
		for _, volume := range p.Spec.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			var items []corev1.KeyToPath
			switch {
			case volume.Secret != nil:
				found.Volume, found.Secret, items = volume.Name, volume.Secret.SecretName, volume.Secret.Items
			case volume.ConfigMap != nil:
				found.Volume, found.ConfigMap, items = volume.Name, volume.ConfigMap.Name, volume.ConfigMap.Items
			default:
				continue
			}
			found.Keys[path] = mount.SubPath
			for _, item := range items {
				if item.Path == mount.SubPath {
					found.Keys[path] = item.Key
				}
			}
		}
	}
	return found
}

// licenseFiles returns the content of a driver pod's license files, or the kubelet's message if the volume cannot be mounted.
func (r *reconciliation) licenseFiles(pod *Pod) (files map[string][]byte, failure string, err error) {
	data, kind := map[string][]byte{}, "secret"
	switch volume := pod.License; {
	case volume.Secret != "":
		secret, getErr := r.core.CoreV1().Secrets(pod.Namespace).Get(r.ctx, volume.Secret, metav1.GetOptions{})
		if err = getErr; err == nil {
			data = secret.Data
		}
	case volume.ConfigMap != "":
		kind = "config"
		configMap, getErr := r.core.CoreV1().ConfigMaps(pod.Namespace).Get(r.ctx, volume.ConfigMap, metav1.GetOptions{})
		if err = getErr; err == nil {
			for key, value := range configMap.Data {
				data[key] = []byte(value)
			}
		}
	}
	prefix := fmt.Sprintf("MountVolume.SetUp failed for volume %q : ", pod.License.Volume)
	if apierrors.IsNotFound(err) {
		return nil, prefix + err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	files = map[string][]byte{}
	for path, key := range pod.License.Keys {
		content, exists := data[key]
		if !exists {
			return nil, fmt.Sprintf("%sreferences non-existent %s key: %s", prefix, kind, key), nil
		}
		files[path] = content
	}
	return files, "", nil
}

// mountLicense writes the license files into the container of a driver pod that starts. It returns false while the volume cannot be
// mounted: the pod remains in ContainerCreating, as on a real node.
func (r *reconciliation) mountLicense(pod *Pod) (bool, error) {
	if !r.driverPods.enabled() {
		return true, nil
	}
	uid := string(pod.UID)
	before, tried := r.memory.mounts[uid]
	if tried && before == "" {
		return true, nil
	}
	files, failure, err := r.licenseFiles(pod)
	if err != nil {
		return false, err
	}
	if failure != "" {
		r.again.at(time.Now().Add(mountRetry))
		if failure == before {
			return false, nil
		}
		r.memory.mounts[uid] = failure
		if pod.State == "" {
			if err := r.pending(pod, nil, "ContainerCreating"); err != nil {
				return false, err
			}
		}
		return false, r.warn(pod, "FailedMount", failure)
	}
	if r.node.Hardware == nil || r.node.Hardware.VGPU == nil {
		files = nil // only the image of a vGPU driver copies them
	}
	folder := r.driverPods.folder(pod)
	if err := folder.Create(); err != nil {
		return false, err
	}
	for _, path := range licensePaths {
		for _, name := range []string{path, path + ".new"} {
			if err := os.Remove(folder.File(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
		if content, has := files[path]; has {
			if err := os.WriteFile(folder.File(path), content, 0o600); err != nil {
				return false, err
			}
		}
	}
	r.memory.mounts[uid] = ""
	return true, nil
}

// startContainer completes the start of a driver pod's container: nvidia-gridd runs, and commands can be executed.
func (r *reconciliation) startContainer(pod *Pod) error {
	if !r.driverPods.enabled() || r.memory.running[string(pod.UID)] {
		return nil
	}
	folder := r.driverPods.folder(pod)
	if err := folder.SetState(driverpod.State{Started: time.Now().UnixNano()}); err != nil {
		return err
	}
	if r.node.Hardware.VGPU != nil {
		if err := folder.StartDaemon(); err != nil {
			return err
		}
	}
	if err := r.updateLicense(pod); err != nil {
		return err
	}
	if err := r.driverPods.announce(r.ctx, pod); err != nil {
		return err
	}
	r.memory.running[string(pod.UID)] = true
	return nil
}

// reconcileLicense updates the license of a running driver pod; it also starts a container that was loaded without its folder.
func (r *reconciliation) reconcileLicense(pod *Pod) error {
	if !r.driverPods.enabled() || r.node.Hardware == nil {
		return nil
	}
	if _, err := r.driverPods.folder(pod).State(); errors.Is(err, fs.ErrNotExist) {
		if mounted, err := r.mountLicense(pod); err != nil || !mounted {
			return err
		}
		return r.startContainer(pod)
	}
	return r.updateLicense(pod)
}

// updateLicense computes the license of a node, and what commands in the driver pod's container show.
func (r *reconciliation) updateLicense(pod *Pod) error {
	folder := r.driverPods.folder(pod)
	state, err := folder.State()
	if err != nil {
		return err
	}
	daemon, err := folder.Daemon()
	if err != nil {
		return err
	}
	hardware := r.hardware()
	next := driverpod.State{Started: state.Started, Skew: r.node.Faults.ClockSkew(), StopTime: r.scaled(rules.GriddStop), Licensed: hardware.VGPU != nil,
		Unreachable: r.node.Faults.UnreachableLayer()}
	if hardware.VGPU != nil {
		client := rules.LicenseClient{Profile: hardware.VGPU.Profile, Driver: fmt.Sprintf("%s/%d", pod.UID, state.Started), Faults: r.node.Faults,
			Now: time.Now(), Grace: r.scaled(rules.LicenseGrace)}
		if daemon.Runs() {
			client.PID, client.Config, client.Token = daemon.PID, daemon.Config, daemon.Token
		}
		license, again := client.Next(r.license())
		if !again.IsZero() {
			r.again.at(again)
		}
		if err := r.saveLicense(license); err != nil {
			return err
		}
		next.PID, next.Status = client.PID, license.Shown()
	}
	next.Query = strings.Join(rules.NvidiaSMIQuery(r.node.Name, hardware, driverpod.StatusMark), "\n") + "\n"
	return folder.SetState(next)
}

func (r *reconciliation) license() *rules.License {
	if saved := r.memory.license; saved != nil {
		if saved.Status == "" {
			return nil // removed
		}
		return saved
	}
	return rules.ParseLicense(r.node.License)
}

func (r *reconciliation) saveLicense(license rules.License) error {
	if before := r.license(); before != nil && *before == license {
		return nil
	}
	text, err := json.Marshal(license)
	if err != nil {
		return err
	}
	if err := r.patchMetadata(nil, object{rules.LicenseAnnotation: string(text)}); err != nil {
		return err
	}
	r.memory.license = &license
	return nil
}

// stopContainer ends a driver pod's container.
func (r *reconciliation) stopContainer(pod *Pod) error {
	if !r.driverPods.enabled() {
		return nil
	}
	r.forgetContainer(pod)
	if err := r.removeLicense(); err != nil {
		return err
	}
	return r.driverPods.withdraw(r.ctx, pod)
}

// forgetContainer makes the next start of a driver pod's container mount its volumes again.
func (r *reconciliation) forgetContainer(pod *Pod) {
	delete(r.memory.mounts, string(pod.UID))
	delete(r.memory.running, string(pod.UID))
}

// endLicense removes the license of a driver pod that was deleted: nvidia-gridd returns it when the container stops.
func (r *reconciliation) endLicense() error {
	license := r.license()
	if license == nil {
		return nil
	}
	for _, pod := range r.pods {
		if pod.DeletionTimestamp == nil && strings.HasPrefix(license.Driver, string(pod.UID)+"/") {
			return nil
		}
	}
	return r.removeLicense()
}

func (r *reconciliation) removeLicense() error {
	if r.license() == nil {
		return nil
	}
	if err := r.patchMetadata(nil, object{rules.LicenseAnnotation: nil}); err != nil {
		return err
	}
	r.memory.license = &rules.License{}
	return nil
}
