package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// goClient is Go's own HTTP client with as many callers as it has connections.
type goClient struct {
	url       string
	transport *http.Transport
	count     int
}

// ordinary makes one, and has it connect.
func ordinary(_ context.Context, address string, count int) (asker, error) {
	c := &goClient{url: "http://" + address + "/", count: count, transport: &http.Transport{
		MaxConnsPerHost: count, MaxIdleConnsPerHost: count, DisableCompression: true,
	}}
	if _, err := c.run(0); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *goClient) close() { c.transport.CloseIdleConnections() }

// run has every caller ask again as soon as it is answered, at least once.
func (c *goClient) run(length time.Duration) (float64, error) {
	client := http.Client{Transport: c.transport, Timeout: 10 * time.Second}
	var answered atomic.Int64
	errs := make([]error, c.count)
	begin := time.Now()
	var callers sync.WaitGroup
	for i := range errs {
		callers.Go(func() {
			for asked := false; !asked || time.Since(begin) < length; asked = true {
				if errs[i] = c.ask(&client); errs[i] != nil {
					return
				}
				if time.Since(begin) < length {
					answered.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if length == 0 {
		return 0, errors.Join(errs...)
	}
	return float64(answered.Load()) / length.Seconds(), errors.Join(errs...)
}

func (c *goClient) ask(client *http.Client) error {
	answer, err := client.Get(c.url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || string(body) != "Hello from a pod.\n" {
		return fmt.Errorf("answered with %s, %q", answer.Status, body)
	}
	return nil
}
