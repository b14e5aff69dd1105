// cert-manager runs those of cert-manager's controllers that issue certificates from self-signed and CA issuers, and
// its cainjector, in one process: it calls cert-manager's packages, because its own programs are no modules that a proxy
// has. There is no leader election, no webhook and no listener, so that several may run at once.
//
//	cert-manager <kubeconfig>
//
// It logs to stderr, waits for cert-manager's definitions, and runs until SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	cmscheme "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	// Importing them makes the kinds of issuers known to cert-manager.
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Importing their packages makes them known to cert-manager.
var controllers = []string{
	issuers.ControllerName,
	clusterissuers.ControllerName,
	trigger.ControllerName,
	keymanager.ControllerName,
	requestmanager.ControllerName,
	issuing.ControllerName,
	readiness.ControllerName,
	revisionmanager.ControllerName,
	approver.ControllerName,
	selfsigned.CRControllerName,
	ca.CRControllerName,
}

// As many as cert-manager has for each controller by default.
const workers = 5

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Usage: cert-manager <kubeconfig>")
		os.Exit(2)
	}
	logf.InitLogs()
	ctrl.SetLogger(logf.Log)
	err := run(ctrl.SetupSignalHandler(), os.Args[1])
	logf.FlushLogs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	cluster, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("%s is not a kubeconfig: %w", kubeconfig, err)
	}
	if err := awaitDefinitions(ctx, cluster); err != nil {
		return fmt.Errorf("cert-manager's definitions are not there: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return injectAuthorities(ctx, cluster) })
	if err := issueCertificates(ctx, group, kubeconfig); err != nil {
		return err
	}
	return group.Wait()
}

// Informers of kinds that do not exist fail for good in cainjector, and slow the others down.
func awaitDefinitions(ctx context.Context, cluster *rest.Config) error {
	lookup, err := discovery.NewDiscoveryClientForConfig(cluster)
	if err != nil {
		return err
	}
	needed := sets.New("certificates", "certificaterequests", "issuers", "clusterissuers")
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		served, err := lookup.ServerResourcesForGroupVersion(certmanager.GroupName + "/v1")
		if err != nil {
			return false, nil
		}
		there := sets.New[string]()
		for _, resource := range served.APIResources {
			there.Insert(resource.Name)
		}
		return there.IsSuperset(needed), nil
	})
}

func issueCertificates(ctx context.Context, group *errgroup.Group, kubeconfig string) error {
	// The values are cert-manager's defaults.
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions: controller.IssuerOptions{
			ClusterResourceNamespace:        "kube-system",
			ClusterIssuerAmbientCredentials: true,
		},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return fmt.Errorf("cert-manager's clients cannot be made: %w", err)
	}
	// Controllers ask for their informers when they are made; only then can those start.
	running := make([]controller.Interface, 0, len(controllers))
	for _, name := range controllers {
		known, ok := controller.Known()[name]
		if !ok {
			return fmt.Errorf("cert-manager knows no controller %s", name)
		}
		made, err := known(factory)
		if err != nil {
			return fmt.Errorf("the controller %s cannot be made: %w", name, err)
		}
		running = append(running, made)
	}
	shared, err := factory.Build()
	if err != nil {
		return fmt.Errorf("cert-manager's informers cannot be made: %w", err)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	for i, made := range running {
		group.Go(func() error {
			if err := made.Run(workers, ctx); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the controller %s failed: %w", controllers[i], err)
			}
			return nil
		})
	}
	return nil
}

func injectAuthorities(ctx context.Context, cluster *rest.Config) error {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, cmscheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(cluster, "cainjector"), ctrl.Options{
		Scheme: kinds,
		Cache:  cache.Options{ReaderFailOnMissingInformer: true},
		// cainjector watches only the metadata of Secrets, and reads them when it needs them.
		Client:                 client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return fmt.Errorf("cainjector cannot be made: %w", err)
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	})
	if err != nil {
		return fmt.Errorf("cainjector's controllers cannot be made: %w", err)
	}
	if err := manager.Start(ctx); err != nil {
		return fmt.Errorf("cainjector failed: %w", err)
	}
	return nil
}
