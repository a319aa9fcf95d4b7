// Runs the controller of trust-manager that turns bundles into config maps, against the API server that a kubeconfig
// names. trust-manager's own program does so with its webhook, leader election and listeners on all addresses.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/trust-manager/pkg/apis/trust/v1alpha1"
	"github.com/cert-manager/trust-manager/pkg/bundle"
	"github.com/cert-manager/trust-manager/pkg/bundle/controller"
)

func main() {
	// Named as trust-manager's own are. The package of the controllers has taken `kubeconfig` already.
	namespace := flag.String("trust-namespace", "cert-manager", "where the sources of bundles are")
	flag.Parse()
	kubeconfig := flag.Lookup("kubeconfig").Value.String()
	if err := run(kubeconfig, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		return err
	}
	options := controller.Options{Namespace: namespace}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 kinds,
		Cache:                  bundle.CacheOpts(options),
		Metrics:                server.Options{BindAddress: "0"}, // none
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return err
	}
	if err := bundle.SetupWithManager(ctx, manager, options); err != nil {
		return err
	}
	return manager.Start(ctx)
}
