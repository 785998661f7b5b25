package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sunaba-project/sunaba/tests/oci"
)

// nginxConf serves on one port of both IP families. Debian's nginx has its own idea of where the
// pid file is.
const nginxConf = `user www-data;
worker_processes 1;
pid /var/run/nginx.pid;
events {}
http {
    access_log off;
    server {
        listen %[1]d;
        listen [::]:%[1]d;
        root /usr/share/nginx/html;
    }
}
`

// nginx returns the files of Debian's nginx, taken from its unpacked packages: the program, the
// libraries it needs and the loader.
func nginx(root string) ([]oci.File, error) {
	files := []oci.File{
		oci.Dir("lib", 0o755), oci.Dir("lib64", 0o755), oci.Dir("usr", 0o755), oci.Dir("usr/sbin", 0o755),
		oci.Dir("usr/share", 0o755), oci.Dir("usr/share/nginx", 0o755), oci.Dir("usr/share/nginx/html", 0o755),
		oci.Dir("etc/nginx", 0o755), oci.Dir("var/lib", 0o755), oci.Dir("var/lib/nginx", 0o755),
		oci.Dir("var/log", 0o755), oci.Dir("var/log/nginx", 0o755),
		oci.Text("usr/share/nginx/html/index.html", "<h1>Welcome to nginx!</h1>\n"),
	}
	var walk func(file, at string) error
	seen := map[string]bool{}
	walk = func(file, at string) error {
		if seen[at] {
			return nil
		}
		seen[at] = true
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		files = append(files, oci.Program(at, body))
		program, err := elf.Open(file)
		if err != nil {
			return fmt.Errorf("read %q: %w", file, err)
		}
		defer program.Close()
		needed, err := program.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("read %q: %w", file, err)
		}
		for _, library := range needed {
			from, err := find(root, library)
			if err != nil {
				return err
			}
			if err := walk(from, filepath.Join("lib", library)); err != nil {
				return err
			}
		}
		loader, err := interpreter(program)
		if err != nil || loader == "" {
			return err
		}
		from, err := find(root, filepath.Base(loader))
		if err != nil {
			return err
		}
		return walk(from, strings.TrimPrefix(loader, "/"))
	}
	return files, walk(filepath.Join(root, "usr/sbin/nginx"), "usr/sbin/nginx")
}

// interpreter is the path of the loader that a program names, "" if it names none.
func interpreter(program *elf.File) (string, error) {
	section := program.Section(".interp")
	if section == nil {
		return "", nil
	}
	data, err := section.Data()
	return strings.TrimRight(string(data), "\x00"), err
}

// find looks for a library below the folders where Debian keeps them.
func find(root, library string) (string, error) {
	for _, pattern := range []string{"lib/*/", "usr/lib/*/", "lib/", "usr/lib/"} {
		found, err := filepath.Glob(filepath.Join(root, pattern, library))
		if err != nil {
			return "", err
		}
		for _, file := range found {
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				return file, err
			}
		}
	}
	return "", fmt.Errorf("find library %q below %q: %w", library, root, fs.ErrNotExist)
}
