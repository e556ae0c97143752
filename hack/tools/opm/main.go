// Command opm renders a catalog template from bundles that lie in folders. The opm
// of operator-registry, which is pinned here too, renders only what a registry holds,
// and so cannot tell whether the catalog of a release that is not published yet is
// right.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	texttemplate "text/template"

	"github.com/operator-framework/operator-registry/alpha/action"
	"github.com/operator-framework/operator-registry/alpha/action/migrations"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/template"
	"github.com/sirupsen/logrus"
)

const usage = `usage: opm TEMPLATE IMAGES FOLDER...
  TEMPLATE  a catalog template, as olm.semver
  IMAGES    where bundles are published, as registry.example/redis-operator-bundle:v{{.Version}}
  FOLDER    a bundle; those that the template names have to be among them
The catalog goes to standard output.`

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	logrus.SetOutput(io.Discard) // what fails is returned
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "opm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, templateFile, images string, folders []string) error {
	bundles, err := read(ctx, images, folders)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(templateFile)
	if err != nil {
		return err
	}
	t, reader, err := template.NewRegistry().CreateTemplateBySchema(bytes.NewReader(data), func(_ context.Context, image string) (*declcfg.DeclarativeConfig, error) {
		b, ok := bundles[image]
		if !ok {
			return nil, fmt.Errorf("%s names %s, which none of the folders %q is", templateFile, image, folders)
		}
		return &declcfg.DeclarativeConfig{Bundles: []declcfg.Bundle{b}}, nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", templateFile, err)
	}
	catalog, err := t.Render(ctx, reader)
	if err != nil {
		return fmt.Errorf("render %s: %w", templateFile, err)
	}
	return declcfg.WriteYAML(*catalog, os.Stdout)
}

// read renders the bundles as opm does, by the image that each will be.
func read(ctx context.Context, images string, folders []string) (map[string]declcfg.Bundle, error) {
	reference, err := texttemplate.New("images").Parse(images)
	if err != nil {
		return nil, fmt.Errorf("images %q: %w", images, err)
	}
	// What a catalog needs of a ClusterServiceVersion is kept, not all its objects.
	slim, err := migrations.NewMigrations("bundle-object-to-csv-metadata")
	if err != nil {
		return nil, err
	}
	out := map[string]declcfg.Bundle{}
	for _, folder := range folders {
		rendered, err := action.Render{
			Refs: []string{folder}, AllowedRefMask: action.RefBundleDir, ImageRefTemplate: reference, Migrations: slim,
		}.Run(ctx)
		if err != nil {
			return nil, err
		}
		for _, b := range rendered.Bundles {
			if _, twice := out[b.Image]; twice {
				return nil, fmt.Errorf("two of the folders %q are %s", folders, b.Image)
			}
			out[b.Image] = b
		}
	}
	return out, nil
}
