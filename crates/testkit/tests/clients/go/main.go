// What a program in Go does with a protected cluster: it writes, appends, reads, lists and renames
// by the client github.com/colinmarc/hdfs, and compares every byte with a local file.
//
//	clients FILE DIR [OTHER...]
//
// DIR of the cluster gets what FILE holds as DIR/file. Each OTHER is a file of the cluster that
// shall hold the same bytes. The cluster is that of HADOOP_CONF_DIR, the ticket that of KRB5CCNAME.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"
	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
)

// Bytes of the last of the three pieces in which a file is written, each behind the one before.
const tail = 100_003

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(file, dir string, others []string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, other := range others {
		if err := read(c, other, data); err != nil {
			return fmt.Errorf("reading %s: %w", other, err)
		}
	}
	if err := c.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := write(c, dir+"/new", data); err != nil {
		return err
	}
	if err := c.Rename(dir+"/new", dir+"/file"); err != nil {
		return err
	}
	if err := read(c, dir+"/file", data); err != nil {
		return fmt.Errorf("reading %s/file: %w", dir, err)
	}
	return list(c, dir, len(data))
}

func connect() (*hdfs.Client, error) {
	conf, err := hadoopconf.LoadFromEnvironment()
	if err != nil {
		return nil, err
	}
	options := hdfs.ClientOptionsFromConf(conf)
	if options.KerberosClient == nil {
		return nil, fmt.Errorf("the configuration asks for no Kerberos")
	}
	realm, err := config.Load(os.Getenv("KRB5_CONFIG"))
	if err != nil {
		return nil, err
	}
	cache, err := credentials.LoadCCache(strings.TrimPrefix(os.Getenv("KRB5CCNAME"), "FILE:"))
	if err != nil {
		return nil, err
	}
	if options.KerberosClient, err = client.NewFromCCache(cache, realm); err != nil {
		return nil, err
	}
	return hdfs.NewClient(options)
}

func write(c *hdfs.Client, path string, data []byte) error {
	out, err := c.CreateFile(path, 3, 1<<20, 0o644)
	if err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	half := len(data) / 2
	if err := pieces(out, data[:half]); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	for _, part := range [][]byte{data[half : len(data)-tail], data[len(data)-tail:]} {
		if out, err = c.Append(path); err != nil {
			return fmt.Errorf("opening for append: %w", err)
		}
		if err := pieces(out, part); err != nil {
			return fmt.Errorf("appending: %w", err)
		}
	}
	return nil
}

// Writes in odd pieces, flushes once, and closes.
func pieces(out *hdfs.FileWriter, data []byte) error {
	for at := 0; at < len(data); at += 70_001 {
		if _, err := out.Write(data[at:min(at+70_001, len(data))]); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return out.Close()
}

func read(c *hdfs.Client, path string, data []byte) error {
	in, err := c.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	all, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	if !bytes.Equal(all, data) {
		return fmt.Errorf("%d bytes that differ from the %d written", len(all), len(data))
	}
	for _, at := range []int{0, 511, 1<<20 - 3, 1 << 20, len(data) - tail - 1} {
		piece := make([]byte, 70_000)
		if _, err := in.ReadAt(piece, int64(at)); err != nil {
			return err
		}
		if !bytes.Equal(piece, data[at:at+len(piece)]) {
			return fmt.Errorf("other bytes at %d", at)
		}
	}
	// Nodes tell the checksum of a block over the same protected connections.
	if sum, err := in.Checksum(); err != nil || len(sum) != 16 {
		return fmt.Errorf("checksum %x: %w", sum, err)
	}
	return nil
}

func list(c *hdfs.Client, dir string, size int) error {
	if err := c.CreateEmptyFile(dir + "/empty"); err != nil {
		return err
	}
	entries, err := c.ReadDir(dir)
	if err != nil {
		return err
	}
	var seen []string
	for _, entry := range entries {
		seen = append(seen, fmt.Sprintf("%s %d", entry.Name(), entry.Size()))
	}
	sort.Strings(seen)
	want := fmt.Sprintf("[empty 0 file %d]", size)
	if got := fmt.Sprint(seen); got != want {
		return fmt.Errorf("listed %s, not %s", got, want)
	}
	return c.Remove(dir + "/empty")
}
