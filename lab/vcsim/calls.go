// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// call is one call that changes something.
type call struct {
	Method string `json:"method"`
	Type   string `json:"type"`
	Object string `json:"object"`
	Name   string `json:"name"`
	User   string `json:"user"`
}

// request is one HTTP request, of SOAP or REST.
type request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Agent  string `json:"agent"`
}

// callLog appends calls or requests to a file, one JSON object per line.
type callLog struct {
	path  string
	mutex sync.Mutex
}

// The beginnings of the names of methods that only read.
var readers = []string{
	"Cancel", "Check", "Continue", "Current", "Estimate", "Fetch", "Find", "Generate", "Get", "Has", "HttpNfcLeaseGet", "Is", "List", "Log", "Lookup",
	"Parse", "Query", "Read", "Recommend", "Retrieve", "Rewind", "Search", "SessionIs", "Wait", "Xxx",
	"CreateCollector", "CreateContainerView", "CreateDescriptor", "CreateFilter", "CreateImportSpec", "CreateInventoryView", "CreateListView",
	"CreatePropertyCollector", "DestroyCollector", "DestroyProperty", "DestroyView", "ModifyListView", "ResetListView", "SetCollectorPageSize", "ValidateHost",
}

// mutates returns whether a method changes something; a login, a view and a filter of properties change only the session.
func mutates(method string) bool {
	return !slices.ContainsFunc(readers, func(start string) bool { return strings.HasPrefix(method, start) })
}

func (l *callLog) add(ctx *simulator.Context, method string, ref types.ManagedObjectReference) {
	one := call{Method: method, Type: ref.Type, Object: ref.Value}
	if entity, ok := ctx.Map.Get(ref).(mo.Entity); ok {
		one.Name = entity.Entity().Name
	}
	if ctx.Session != nil {
		one.User = ctx.Session.UserName
	}
	l.write(one)
}

func (l *callLog) write(one any) {
	if l.path == "" {
		return
	}
	line, err := json.Marshal(one)
	if err != nil {
		log.Println("vcsim:", err)
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Println("vcsim:", err)
		return
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Write(append(line, '\n')); err != nil {
		log.Println("vcsim:", err)
	}
}

// watchHTTP logs all requests, and those of the REST API that change something also as calls; it answers 503 while the fault `unavailable` is injected, and
// completes faults.
func (c *vCenter) watchHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requests.write(request{Method: r.Method, Path: r.URL.Path, Agent: r.UserAgent()})
		if _, down := c.fault(unavailable); down {
			http.Error(w, "503 Service Unavailable", http.StatusServiceUnavailable)
			return
		}
		rest := strings.HasPrefix(r.URL.Path, "/rest/") || strings.HasPrefix(r.URL.Path, "/api/")
		if rest && r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/session") && !readsREST(r.URL) {
			c.calls.write(call{Method: r.Method, Type: "REST", Object: r.URL.RequestURI()})
		}
		answer := &faultWriter{ResponseWriter: w}
		next.ServeHTTP(answer, r)
		answer.finish()
	})
}

// The messages of faults: the simulator sends those that a registry's handler returns without one, and writes a type of Go into tasks and leases.
var messages = map[string]string{
	"DuplicateName":     "The name already exists.",
	"FileAlreadyExists": "Cannot complete the operation because the file or folder already exists.",
	"HostNotConnected":  "The operation is not allowed, because the host is not connected.",
	"NoPermission":      "Permission to perform this operation was denied.",
	"NotAuthenticated":  "The session is not authenticated.",
	"SystemError":       "A general system error occurred: the fault task-fails",
}

var typeAsMessage = regexp.MustCompile(`<localizedMessage>\*types\.(\w+)</localizedMessage>`)

// withMessages replaces types of Go that stand for a message; a type without one is named as in the API.
func withMessages(answer []byte) []byte {
	if !bytes.Contains(answer, []byte(">*types.")) {
		return answer
	}
	return typeAsMessage.ReplaceAllFunc(answer, func(found []byte) []byte {
		kind := string(typeAsMessage.FindSubmatch(found)[1])
		return []byte("<localizedMessage>" + cmp.Or(messages[kind], kind) + "</localizedMessage>")
	})
}

// faultWriter adds the messages to SOAP faults, tasks and leases.
type faultWriter struct {
	http.ResponseWriter
	fault *bytes.Buffer
}

// WriteHeader keeps the answer back if it is a fault.
func (w *faultWriter) WriteHeader(status int) {
	if status == http.StatusInternalServerError {
		w.fault = new(bytes.Buffer)
		w.Header().Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes or keeps a part of the answer.
func (w *faultWriter) Write(data []byte) (int, error) {
	if w.fault != nil {
		return w.fault.Write(data)
	}
	if _, err := w.ResponseWriter.Write(withMessages(data)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Flush sends what is not kept.
func (w *faultWriter) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (w *faultWriter) finish() {
	if w.fault == nil {
		return
	}
	text := w.fault.String()
	for kind, message := range messages {
		if strings.Contains(text, `xsi:type="`+kind+`"`) {
			text = strings.Replace(text, "<faultstring></faultstring>", "<faultstring>"+message+"</faultstring>", 1)
		}
	}
	if _, err := io.WriteString(w.ResponseWriter, text); err != nil {
		log.Println("vcsim:", err)
	}
}

// readsREST returns whether a POST only reads, such as ?~action=list-attached-tags.
func readsREST(address *url.URL) bool {
	action := address.Query().Get("~action") + address.Query().Get("action")
	return strings.HasPrefix(action, "list") || strings.HasPrefix(action, "get") || strings.HasPrefix(action, "find")
}
