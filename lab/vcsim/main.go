// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command vcsim simulates a vCenter with vGPU hosts: govmomi's simulator, plus the behavior of a real vCenter that the preparation of
// GPU hosts, templates and machines meets.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	_ "github.com/vmware/govmomi/pbm/simulator"
	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
)

// options are the command line.
type options struct {
	listen, uploads, version          string
	inventory, users, settings, state string
	calls, requests                   string
	images, imagesListen              string
	certificate, key                  string
}

func main() {
	chosen := options{}
	flag.StringVar(&chosen.listen, "listen", "127.0.0.1:8989", "address of the vCenter")
	flag.StringVar(&chosen.uploads, "uploads", "", "address of the ESXi hosts for uploads (default: the vCenter's)")
	flag.StringVar(&chosen.version, "api-version", "8.0.3.0", "version of the API")
	flag.StringVar(&chosen.inventory, "inventory", "", "JSON file with the datacenters, clusters, hosts and GPUs")
	flag.StringVar(&chosen.users, "users", "", "JSON file with the users and their privileges, which may change")
	flag.StringVar(&chosen.settings, "settings", "", "JSON file with the faults and settings of the lab's clouds, which may change")
	flag.StringVar(&chosen.calls, "calls", "", "file to which the calls that change something are appended as JSON lines")
	flag.StringVar(&chosen.requests, "requests", "", "file to which all requests are appended as JSON lines")
	flag.StringVar(&chosen.state, "state", "", "JSON file that keeps the virtual machines for the next start")
	flag.StringVar(&chosen.images, "images", "", "folder with images, served by HTTP")
	flag.StringVar(&chosen.imagesListen, "images-listen", "", "address of the images")
	flag.StringVar(&chosen.certificate, "certificate", "", "file with the certificate of the vCenter and the ESXi hosts")
	flag.StringVar(&chosen.key, "key", "", "file with the key of the certificate")
	flag.Parse()
	center, err := start(chosen)
	if err != nil {
		log.Fatal("vcsim: ", err)
	}
	fmt.Println("vcsim: ready", center.server.URL.Host, center.uploads, center.images)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	center.save()
	os.Exit(0) // without waiting for open connections
}

// start creates the vCenter with its inventory and serves it.
func start(chosen options) (*vCenter, error) {
	plan, err := loadInventory(chosen.inventory)
	if err != nil {
		return nil, err
	}
	model := simulator.VPX()
	// An empty vCenter; inventory.go creates the objects.
	model.Datacenter, model.Cluster, model.Host, model.Machine, model.Portgroup, model.Datastore = 0, 0, 0, 0, 0, 0
	about, version := &model.ServiceContent.About, make([]int, 4)
	if _, err := fmt.Sscanf(chosen.version, "%d.%d.%d.%d", &version[0], &version[1], &version[2], &version[3]); err != nil {
		return nil, fmt.Errorf("-api-version: %q is not a version such as 8.0.3.0", chosen.version)
	}
	about.ApiVersion, about.Version = chosen.version, chosen.version[:strings.LastIndex(chosen.version, ".")]
	about.FullName = fmt.Sprintf("%s %s build-%s", about.Name, about.Version, about.Build)
	if err := model.Create(); err != nil {
		return nil, err
	}
	center := &vCenter{
		hosts: map[string]*gpuHost{}, stores: map[string]string{}, folder: os.TempDir(), version: version,
		users: &jsonFile[map[string]user]{path: chosen.users}, settings: &jsonFile[settings]{path: chosen.settings},
		calls: &callLog{path: chosen.calls}, requests: &callLog{path: chosen.requests}, state: &stateFile{path: chosen.state},
	}
	registry := model.Map()
	center.registry = registry
	registry.Put(center)
	registry.Handler = center.handle
	registry.SessionManager().ValidLogin = center.validLogin
	service := model.Service
	// Without a user in the address, the simulator accepts all passwords.
	service.Listen = &url.URL{Host: chosen.listen, User: url.User("vcsim")}
	certificates, err := center.loadCertificates(chosen)
	if err != nil {
		return nil, err
	}
	service.TLS = &tls.Config{Certificates: certificates}
	service.RegisterEndpoints = true
	service.ServeMux = http.NewServeMux()
	service.ServeMux.HandleFunc("GET /sdk/vimServiceVersions.xml", serveVersions(chosen.version))
	// These patterns are more specific than the simulator's "/nfc/", so they get the uploads.
	service.ServeMux.HandleFunc("POST /nfc/", center.serveUpload)
	service.ServeMux.HandleFunc("PUT /nfc/", center.serveUpload)
	center.server = service.NewServer()
	center.uploads = center.server.URL.Host
	center.server.Config.Handler = center.watchHTTP(center.server.Config.Handler)
	if chosen.uploads != "" {
		if center.uploads, err = center.serveHosts(chosen.uploads); err != nil {
			return nil, err
		}
		plan.uploads = "https://" + center.uploads + "/sdk"
	}
	if chosen.images != "" {
		if center.images, err = serveImages(chosen.imagesListen, chosen.images); err != nil {
			return nil, err
		}
	}
	if err := plan.create(service, center, registry); err != nil {
		return nil, err
	}
	if err := center.restore(service.Context); err != nil {
		return nil, fmt.Errorf("%s: %w", chosen.state, err)
	}
	go center.watch()
	center.ready.Store(true)
	return center, nil
}

// The versions of the API that a vCenter also supports; the simulator itself lists only two of them. Source: the releases of VMware's pyvmomi.
var versions = []string{
	"9.0.0.0", "8.0.3.0", "8.0.2.0", "8.0.1.0", "8.0.0.1", "7.0.3.2", "7.0.3.0", "7.0.2.0", "7.0.1.0", "7.0", "6.7.3", "6.7.2", "6.7.1", "6.7", "6.5", "6.0",
}

// serveVersions answers which versions of the API clients may use: the current one and those before it.
func serveVersions(current string) http.HandlerFunc {
	older := versions[slices.Index(versions, current)+1:]
	body := "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<namespaces version=\"1.0\"><namespace><name>urn:vim25</name><version>" + current +
		"</version><priorVersions><version>" + strings.Join(older, "</version><version>") + "</version></priorVersions></namespace></namespaces>\n"
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		_, _ = w.Write([]byte(body))
	}
}
