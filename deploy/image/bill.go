package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// bill is the bill of materials of a binary in the JSON of CycloneDX: the modules that are in it, Go's own library among them. Nothing
// in it depends on the moment, and its serial number follows from the binary.
func (o *options) bill(program string, b binary) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read what the toolchain noted: %w", err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)

	product := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: b.name, Version: o.version, Description: b.description,
		PackageURL: purl(info.Main.Path, o.version) + "#cmd/" + b.name,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		Properties: properties(info.Settings),
		ExternalReferences: &[]cyclonedx.ExternalReference{
			{Type: cyclonedx.ERTypeVCS, URL: source, Comment: o.commit},
		},
	}
	product.BOMRef = product.PackageURL

	standard := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		Description: "The standard library of Go",
	}
	standard.PackageURL = purl("std", standard.Version)
	standard.BOMRef = standard.PackageURL
	components := []cyclonedx.Component{standard}
	for _, module := range info.Deps {
		components = append(components, component(module))
	}
	needs := make([]string, 0, len(components))
	for _, c := range components {
		needs = append(needs, c.BOMRef)
	}

	bom := cyclonedx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cyclonedx.Metadata{Timestamp: o.date.Format(time.RFC3339), Component: &product}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: product.BOMRef, Dependencies: &needs}}
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("encode the bill of materials: %w", err)
	}
	return text.Bytes(), nil
}

// component is a module, or what stands for it.
func component(module *debug.Module) cyclonedx.Component {
	if module.Replace != nil {
		module = module.Replace
	}
	c := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: purl(module.Path, module.Version),
	}
	c.BOMRef = c.PackageURL
	// What go.sum says of a module is a SHA-256 over the names and sums of its files.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}

// properties are the settings of the compiler.
func properties(settings []debug.BuildSetting) *[]cyclonedx.Property {
	all := make([]cyclonedx.Property, 0, len(settings))
	for _, s := range settings {
		all = append(all, cyclonedx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &all
}

// purl names a module for those who look up what is known against it.
func purl(module, version string) string {
	return "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// serial is a UUID of version 8, which is made of what its maker likes: here of a sum.
func serial(sum [sha256.Size]byte) string {
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
