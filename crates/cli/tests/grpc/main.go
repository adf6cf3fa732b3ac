// Command grpc is a server of gRPC's interoperability tests, or a client that makes them; both are those of google.golang.org/grpc.
//
//	grpc server ADDRESS...
//	grpc client [-ca FILE -name NAME] [-pool NAME] [-loop] ADDRESS
//
// A client whose test fails ends at once, with a status other than 0. With -loop it makes them again and again, over the
// connection that it has and over a new one, until its standard input ends; then it says how often.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: grpc server ADDRESS... | grpc client OPTIONS ADDRESS")
	}
	switch os.Args[1] {
	case "server":
		serve(os.Args[2:])
	case "client":
		test(os.Args[2:])
	}
}

func serve(addresses []string) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	grpc_testing.RegisterTestServiceServer(server, interop.NewTestServer())
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		go server.Serve(listener)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	server.GracefulStop()
}

func test(words []string) {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	ca := flags.String("ca", "", "file of the certification authority; without one there is no TLS")
	name := flags.String("name", "", "name in the server's certificate")
	pool := flags.String("pool", "", "value of the field x-pool of each request")
	loop := flags.Bool("loop", false, "make the tests again and again")
	flags.Parse(words)

	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if *ca != "" {
		text, err := os.ReadFile(*ca)
		if err != nil {
			log.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		config := &tls.Config{ServerName: *name, RootCAs: roots}
		options = []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(config))}
	}
	connect := func() *grpc.ClientConn {
		connection, err := grpc.NewClient("passthrough:///"+flags.Arg(0), options...)
		if err != nil {
			log.Fatal(err)
		}
		return connection
	}
	ctx := context.Background()
	if *pool != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-pool", *pool)
	}
	lasting := connect()
	if !*loop {
		cases(ctx, lasting)
		short(ctx, lasting)
		return
	}
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for rounds := 1; ; rounds++ {
		fresh := connect()
		cases(ctx, fresh)
		fresh.Close()
		cases(ctx, lasting)
		if rounds == 1 {
			fmt.Println("begun")
		}
		select {
		case <-ended:
			fmt.Println(rounds)
			return
		default:
		}
	}
}

// Each test of https://github.com/grpc/grpc/blob/master/doc/interop-test-descriptions.md that does not need Google's accounts.
func cases(ctx context.Context, connection *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	service := grpc_testing.NewTestServiceClient(connection)
	for _, one := range []func(context.Context, grpc_testing.TestServiceClient, ...grpc.CallOption){
		interop.DoEmptyUnaryCall,
		interop.DoLargeUnaryCall,
		interop.DoClientStreaming,
		interop.DoServerStreaming,
		interop.DoPingPong,
		interop.DoEmptyStream,
		interop.DoTimeoutOnSleepingServer,
		interop.DoCancelAfterBegin,
		interop.DoCancelAfterFirstResponse,
		interop.DoCustomMetadata,
		interop.DoStatusCodeAndMessage,
		interop.DoSpecialStatusMessage,
	} {
		one(ctx, service)
	}
	interop.DoUnimplementedService(ctx, grpc_testing.NewUnimplementedServiceClient(connection))
	interop.DoUnimplementedMethod(ctx, connection)
}

// Streams of messages of a byte each, in both directions, as fast as they go.
func short(ctx context.Context, connection *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	const count = 20_000
	service := grpc_testing.NewTestServiceClient(connection)
	up, err := service.StreamingInputCall(ctx)
	message := &grpc_testing.StreamingInputCallRequest{Payload: &grpc_testing.Payload{Body: []byte{7}}}
	for sent := 0; err == nil && sent < count; sent++ {
		err = up.Send(message)
	}
	if err != nil {
		log.Fatal("short messages to the server: ", err)
	}
	answer, err := up.CloseAndRecv()
	if err != nil || answer.AggregatedPayloadSize != count {
		log.Fatal("short messages to the server: ", answer, err)
	}
	asked := &grpc_testing.StreamingOutputCallRequest{}
	for len(asked.ResponseParameters) < count {
		asked.ResponseParameters = append(asked.ResponseParameters, &grpc_testing.ResponseParameters{Size: 1})
	}
	down, err := service.StreamingOutputCall(ctx, asked)
	if err != nil {
		log.Fatal("short messages from the server: ", err)
	}
	// The server has sent what it may before anything is read.
	time.Sleep(100 * time.Millisecond)
	for got := 0; ; got++ {
		_, err := down.Recv()
		if err == io.EOF && got == count {
			return
		}
		if err != nil {
			log.Fatal("short messages from the server: ", got, err)
		}
	}
}
