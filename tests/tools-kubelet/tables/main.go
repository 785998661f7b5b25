// Command tables is an API server for the tests of Sunaba's commands: it answers kubectl from the
// objects of a file, with the tables that Kubernetes' own API server makes. It prints its address.
//
//	tables OBJECTS.yaml
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	coreinstall "k8s.io/kubernetes/pkg/apis/core/install"
	nodeinstall "k8s.io/kubernetes/pkg/apis/node/install"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
	"sigs.k8s.io/yaml"
)

// resource is one kind of objects that the server has.
type resource struct {
	group  string // as in the path: "v1", "node.k8s.io/v1"
	plural string
	metav1.APIResource
}

var resources = []resource{
	{"v1", "pods", metav1.APIResource{SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true}},
	{"v1", "configmaps", metav1.APIResource{SingularName: "configmap", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true}},
	{"v1", "secrets", metav1.APIResource{SingularName: "secret", Kind: "Secret", Namespaced: true}},
	{"v1", "persistentvolumeclaims", metav1.APIResource{SingularName: "persistentvolumeclaim", Kind: "PersistentVolumeClaim", ShortNames: []string{"pvc"}, Namespaced: true}},
	{"v1", "events", metav1.APIResource{SingularName: "event", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true}},
	{"v1", "nodes", metav1.APIResource{SingularName: "node", Kind: "Node", ShortNames: []string{"no"}}},
	{"node.k8s.io/v1", "runtimeclasses", metav1.APIResource{SingularName: "runtimeclass", Kind: "RuntimeClass"}},
	{"metrics.k8s.io/v1beta1", "pods", metav1.APIResource{SingularName: "pod", Kind: "PodMetrics", Namespaced: true}},
}

type server struct {
	objects []*unstructured.Unstructured
	tables  *printers.HumanReadableGenerator
	codecs  serializer.CodecFactory
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: tables OBJECTS.yaml")
	}
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	scheme := runtime.NewScheme()
	coreinstall.Install(scheme)
	nodeinstall.Install(scheme)
	s := &server{tables: printers.NewTableGenerator().With(internalversion.AddHandlers), codecs: serializer.NewCodecFactory(scheme)}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			log.Fatal(err)
		}
		// As an API server stores and answers it: with the fields that the type always has.
		if o.GetKind() != "PodMetrics" {
			data, err := o.MarshalJSON()
			if err != nil {
				log.Fatal(err)
			}
			typed, err := runtime.Decode(s.codecs.UniversalDeserializer(), data)
			if err != nil {
				log.Fatal(err)
			}
			if o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
				log.Fatal(err)
			}
		}
		s.objects = append(s.objects, o)
	}
	// The order of an API server: by namespace and name.
	slices.SortStableFunc(s.objects, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", l.Addr())
	log.Fatal(http.Serve(l, s))
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	switch path {
	case "version":
		answer(w, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
	case "api":
		answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, name := range []string{"node.k8s.io/v1", "metrics.k8s.io/v1beta1"} {
			group, version, _ := strings.Cut(name, "/")
			v := metav1.GroupVersionForDiscovery{GroupVersion: name, Version: version}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
		answer(w, list)
	case "api/v1", "apis/node.k8s.io/v1", "apis/metrics.k8s.io/v1beta1":
		group := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group}
		for _, k := range resources {
			if k.group == group {
				k.Name, k.Verbs = k.plural, metav1.Verbs{"get", "list", "watch", "delete", "create", "patch", "update"}
				list.APIResources = append(list.APIResources, k.APIResource)
			}
		}
		answer(w, list)
	default:
		s.object(w, r, path)
	}
}

// object answers for paths of objects: GROUP[/namespaces/NS]/RESOURCE[/NAME[/log]].
func (s *server) object(w http.ResponseWriter, r *http.Request, path string) {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
	for _, k := range resources {
		parts, ok := strings.CutPrefix(rest, k.group+"/")
		if !ok {
			continue
		}
		namespace, p := "", strings.Split(parts, "/")
		if k.Namespaced && len(p) > 2 && p[0] == "namespaces" {
			namespace, p = p[1], p[2:]
		}
		if p[0] != k.plural {
			continue
		}
		if len(p) > 2 && p[2] == "log" {
			fmt.Fprintf(w, "a line of %s\n", r.URL.Query().Get("container"))
			return
		}
		name := ""
		if len(p) > 1 {
			name = p[1]
		}
		s.serve(w, r, k, namespace, name)
		return
	}
	failure(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource", nil)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request, k resource, namespace, name string) {
	q := r.URL.Query()
	label, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		failure(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	field, err := fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil {
		failure(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	var found []*unstructured.Unstructured
	for _, o := range s.objects {
		if o.GetKind() == k.Kind && (namespace == "" || o.GetNamespace() == namespace) && (name == "" || o.GetName() == name) &&
			label.Matches(labels.Set(o.GetLabels())) && field.Matches(fieldsOf(o)) {
			found = append(found, o)
		}
	}
	group, _, hasGroup := strings.Cut(k.group, "/")
	if !hasGroup {
		group = ""
	}
	if name != "" && len(found) == 0 {
		what := k.plural
		if group != "" {
			what += "." + group
		}
		failure(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", what, name), &metav1.StatusDetails{Name: name, Group: group, Kind: k.plural})
		return
	}
	table := strings.Contains(r.Header.Get("Accept"), "as=Table") && group != "metrics.k8s.io"
	switch {
	case r.Method == http.MethodDelete:
		answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: name, Kind: k.plural, UID: found[0].GetUID()}})
	case r.Method != http.MethodGet:
		failure(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "this server is only read", nil)
	case q.Get("watch") == "true" || q.Get("watch") == "1":
		w.Header().Set("Content-Type", "application/json") // nothing changes, and the watch ends
	case table:
		t, err := s.table(found, q.Get("includeObject"))
		if err != nil {
			failure(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error(), nil)
			return
		}
		answer(w, t)
	case name != "":
		answer(w, found[0])
	default:
		items := make([]any, 0, len(found))
		for _, o := range found {
			items = append(items, o.Object)
		}
		answer(w, map[string]any{"kind": k.Kind + "List", "apiVersion": k.group, "metadata": map[string]any{"resourceVersion": "9"}, "items": items})
	}
}

// table is what the printers of Kubernetes' API server make of objects of one kind.
func (s *server) table(found []*unstructured.Unstructured, include string) (*metav1.Table, error) {
	all := &metav1.Table{}
	for i, o := range found {
		data, err := o.MarshalJSON()
		if err != nil {
			return nil, err
		}
		internal, err := runtime.Decode(s.codecs.UniversalDecoder(), data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.GetName(), err)
		}
		t, err := s.tables.GenerateTable(internal, printers.GenerateOptions{Wide: true})
		if err != nil {
			return nil, err
		}
		for j := range t.Rows {
			t.Rows[j].Object = runtime.RawExtension{Raw: data}
			if include != "Object" {
				meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": o.Object["metadata"]}, meta); err != nil {
					return nil, err
				}
				meta.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}
				t.Rows[j].Object = runtime.RawExtension{Object: meta}
			}
		}
		if i == 0 {
			all.ColumnDefinitions = t.ColumnDefinitions
		}
		all.Rows = append(all.Rows, t.Rows...)
	}
	all.TypeMeta = metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}
	all.ResourceVersion = "9"
	if all.Rows == nil {
		all.Rows = []metav1.TableRow{}
	}
	return all, nil
}

func fieldsOf(o *unstructured.Unstructured) fields.Set {
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	for _, path := range []string{"status.phase", "spec.nodeName", "type", "reason", "involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "involvedObject.uid", "involvedObject.apiVersion"} {
		set[path], _, _ = unstructured.NestedString(o.Object, strings.Split(path, ".")...)
	}
	return set
}

func failure(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Message: message, Code: int32(code), Details: details,
	})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err)
	}
}
