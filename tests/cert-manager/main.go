// Runs the controllers of cert-manager that make certificates of issuers, against the API server that a kubeconfig
// names. cert-manager's own program does so with its webhook, leader election and the issuers that need a network;
// it is a module of its own that can't be had without the whole repository, so this is the rest of it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	requestsselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"

	// What the controllers of issuers find by its type.
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// By name: how they register themselves.
var started = []string{
	requestsca.CRControllerName,
	requestsselfsigned.CRControllerName,
	issuing.ControllerName,
	keymanager.ControllerName,
	readiness.ControllerName,
	requestmanager.ControllerName,
	revisionmanager.ControllerName,
	trigger.ControllerName,
	clusterissuers.ControllerName,
	issuers.ControllerName,
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	approve := flag.Bool("approve", true, "approve every request, as cert-manager does unless told otherwise")
	backoff := flag.Duration("backoff", time.Hour, "how long to wait after a request that has failed")
	namespace := flag.String("cluster-resource-namespace", "cert-manager", "where cluster issuers have their secrets")
	flag.Parse()
	if err := run(*kubeconfig, *approve, *backoff, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string, approve bool, backoff time.Duration, namespace string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   100,
		KubernetesAPIBurst: 200,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: namespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: backoff,
			CertificateRequestMaximumBackoffDuration: max(backoff, 32*time.Hour),
		},
	})
	if err != nil {
		return err
	}
	names := started
	if approve {
		names = append(names, approver.ControllerName)
	}
	var running []controller.Interface
	for _, name := range names {
		construct, known := controller.Known()[name]
		if !known {
			return fmt.Errorf("cert-manager has no controller %s", name)
		}
		built, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running = append(running, built)
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())

	var all sync.WaitGroup
	failed := make(chan error, len(running))
	for _, one := range running {
		all.Go(func() { failed <- one.Run(5, ctx) })
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
		stop()
	}
	all.Wait()
	return err
}
