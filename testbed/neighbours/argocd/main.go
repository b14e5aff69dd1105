// argocd-diff compares manifests with a cluster as Argo CD does by default: with Argo CD's own engine, and the options
// that its application controller passes to it.
//
//	argocd-diff <kubeconfig> < manifests.yaml
//
// It prints one line of JSON per object, and changes nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// The field manager of Argo CD's server-side applies.
const manager = "argocd-controller"

// How much of a difference is printed.
const longest = 100

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Usage: argocd-diff <kubeconfig> < manifests.yaml")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "argocd-diff:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, in io.Reader, out io.Writer) error {
	manifests, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("stdin cannot be read: %w", err)
	}
	objects, err := kube.SplitYAML(manifests)
	if err != nil {
		return fmt.Errorf("stdin holds no Kubernetes objects: %w", err)
	}
	if len(objects) == 0 {
		return errors.New("stdin holds no Kubernetes objects")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("%s is not a kubeconfig: %w", kubeconfig, err)
	}
	// Argo CD's; client-go's own would make us wait.
	config.QPS, config.Burst = 50, 100
	live, err := connect(config)
	if err != nil {
		return err
	}
	log := klog.Background()
	options, err := options(config, log)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, object := range objects {
		if err := compare(live, object, options, lines); err != nil {
			return err
		}
	}
	return nil
}

// Those of an Application without ignoreDifferences, in an Argo CD without settings of its own: the object is compared
// with the last applied one and the live one, or, if its annotation asks for server-side apply, with what that would do.
func options(config *rest.Config, log logr.Logger) ([]diff.Option, error) {
	kubectl := &kube.KubectlCmd{Log: log, Tracer: tracing.NopTracer{}}
	_, parser, err := kubectl.LoadOpenAPISchema(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's schemas cannot be read: %w", err)
	}
	return []diff.Option{
		diff.WithNormalizer(withoutStatus{}),
		diff.IgnoreAggregatedRoles(false),
		diff.WithStructuredMergeDiff(false),
		diff.WithServerSideDiff(false),
		diff.WithGVKParser(parser),
		diff.WithManager(manager),
		diff.WithLogr(log),
	}, nil
}

// Argo CD 3 ignores the status of all objects (resource.compareoptions: ignoreResourceStatusField: all).
type withoutStatus struct{}

func (withoutStatus) Normalize(object *unstructured.Unstructured) error {
	unstructured.RemoveNestedField(object.Object, "status")
	return nil
}

type cluster struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func connect(config *rest.Config) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lookup, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	resources, err := restmapper.GetAPIGroupResources(lookup)
	if err != nil {
		return nil, fmt.Errorf("the API server's kinds cannot be listed: %w", err)
	}
	return &cluster{client, restmapper.NewDiscoveryRESTMapper(resources)}, nil
}

// The live object, nil if there is none. An object without a namespace gets `default`, as the Application's destination.
func (c *cluster) get(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	var resource dynamic.ResourceInterface = c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		resource = c.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	live, err := resource.Get(context.Background(), object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

func compare(c *cluster, object *unstructured.Unstructured, options []diff.Option, lines *json.Encoder) error {
	live, err := c.get(object)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", name(object), err)
	}
	result, err := diff.Diff(object, live, options...)
	if err != nil {
		return fmt.Errorf("%s cannot be compared: %w", name(object), err)
	}
	line := struct {
		Object   string `json:"object"`
		Modified bool   `json:"modified"`
		Diff     string `json:"diff"`
	}{name(object), result.Modified, ""}
	switch {
	case live == nil:
		line.Modified, line.Diff = true, "it does not exist"
	case result.Modified:
		if line.Diff, err = differences(result.NormalizedLive, result.PredictedLive); err != nil {
			return fmt.Errorf("the result for %s is not JSON: %w", name(object), err)
		}
	}
	return lines.Encode(line)
}

func name(object *unstructured.Unstructured) string {
	return strings.Join(slices.DeleteFunc([]string{object.GetKind(), object.GetNamespace(), object.GetName()},
		func(part string) bool { return part == "" }), "/")
}

func differences(live, predicted []byte) (string, error) {
	var is, shall any
	if err := errors.Join(json.Unmarshal(live, &is), json.Unmarshal(predicted, &shall)); err != nil {
		return "", err
	}
	var found []string
	walk("", is, shall, &found)
	return strings.Join(found, "; "), nil
}

func walk(path string, is, shall any, found *[]string) {
	if reflect.DeepEqual(is, shall) {
		return
	}
	isMap, first := is.(map[string]any)
	shallMap, second := shall.(map[string]any)
	if first && second {
		keys := maps.Clone(isMap)
		maps.Copy(keys, shallMap)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			walk(path+"."+key, isMap[key], shallMap[key], found)
		}
		return
	}
	isList, first := is.([]any)
	shallList, second := shall.([]any)
	if first && second && len(isList) == len(shallList) {
		for i := range isList {
			walk(fmt.Sprintf("%s[%d]", path, i), isList[i], shallList[i], found)
		}
		return
	}
	*found = append(*found, fmt.Sprintf("%s: %s -> %s", path, short(is), short(shall)))
}

func short(value any) string {
	if value == nil {
		return "nothing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	if letters := []rune(string(text)); len(letters) > longest {
		return string(letters[:longest]) + "..."
	}
	return string(text)
}
