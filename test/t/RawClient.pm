# A client that speaks the frontend/backend protocol itself: it sees each message as it comes, can
# stop to read in the middle of one, and asks for formats and row limits as drivers do.
package RawClient;

use strict;
use warnings;

use IO::Socket::UNIX;

# Connect to a database of a node, without authentication.
sub new
{
	my ($class, $node, $database) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port)
	  or die "cannot connect: $!";
	my $self = bless { socket => $socket, peeked => '' }, $class;
	my %parameters = (user => scalar getpwuid($>), database => $database);
	my $body = pack('N', 3 << 16) . join('', map { "$_\0$parameters{$_}\0" } keys %parameters);

	$self->write(pack('N', 5 + length($body)) . "$body\0");
	while (1)
	{
		my ($type, $message) = $self->message;
		die "cannot log in: $message" if $type eq 'E';
		$self->{pid} = unpack('N', $message) if $type eq 'K';
		return $self if $type eq 'Z';
	}
}

sub write
{
	my ($self, $bytes) = @_;
	while (length $bytes)
	{
		my $written = syswrite($self->{socket}, $bytes) // die "cannot write: $!";
		substr($bytes, 0, $written, '');
	}
	return;
}

sub send
{
	my ($self, $type, $body) = @_;
	$self->write($type . pack('N', 4 + length($body)) . $body);
	return;
}

# Read this many bytes; fewer only if the connection ends before.
sub read
{
	my ($self, $bytes) = @_;
	my $data = substr($self->{peeked}, 0, $bytes, '');
	while (length($data) < $bytes)
	{
		my $read = sysread($self->{socket}, $data, $bytes - length($data), length($data));
		last if !$read;
	}
	return $data;
}

# Receive this many bytes from the connection, and keep them for later reads.
sub peek
{
	my ($self, $bytes) = @_;
	my $data = $self->read($bytes);
	$self->{peeked} = $data . $self->{peeked};
	return length $data;
}

# Read the next message: type and body, or the empty list if the connection ends within it.
sub message
{
	my ($self) = @_;
	my $head = $self->read(5);
	return if length($head) < 5;
	my ($type, $length) = unpack('aN', $head);
	my $body = $self->read($length - 4);
	return length($body) == $length - 4 ? ($type, $body) : ();
}

# Return the values of a DataRow; die if lengths do not add up.
sub values_of
{
	my ($body) = @_;
	my ($count) = unpack('n', $body);
	my $at = 2;
	my @values;
	for (1 .. $count)
	{
		my $length = unpack('N', substr($body, $at, 4));
		$at += 4;
		if ($length == 0xffffffff)
		{
			push @values, undef;
			next;
		}
		push @values, substr($body, $at, $length);
		$at += $length;
	}
	die 'columns do not fill the message' if $at != length($body);
	return \@values;
}

# Read up to ReadyForQuery.  Returns rows (references to lists of values), and the error's text or
# undef.
sub finish
{
	my ($self) = @_;
	my @rows;
	my $error;
	while (my ($type, $body) = $self->message)
	{
		push @rows, values_of($body) if $type eq 'D';
		$error = $body if $type eq 'E';
		return (\@rows, $error) if $type eq 'Z';
		# With a row limit the portal must live on until it is exhausted.
		$self->execute if $type eq 's';
		$self->send('S', '') if $self->{row_limit} > 0 && $type =~ /[CE]/;
	}
	return (\@rows, $error // 'connection lost');
}

sub query
{
	my ($self, $text) = @_;
	$self->{row_limit} = 0;
	$self->send('Q', "$text\0");
	return $self->finish;
}

sub execute
{
	my ($self) = @_;
	$self->send('E', "\0" . pack('N', $self->{row_limit}));
	$self->send($self->{row_limit} == 0 ? 'S' : 'H', '');
	return;
}

# Send a query by the extended protocol.  formats: a list of codes, one for all or one for each
# column; row_limit: rows for each Execute, 0 for all.
sub start
{
	my ($self, $text, $formats, $row_limit) = @_;
	$self->{row_limit} = $row_limit;
	$self->send('P', "\0$text\0" . pack('n', 0));
	$self->send('B', "\0\0" . pack('nn', 0, 0) . pack('n*', scalar @$formats, @$formats));
	$self->execute;
	return;
}

sub extended
{
	my ($self, @arguments) = @_;
	$self->start(@arguments);
	return $self->finish;
}

sub close
{
	my ($self) = @_;
	close $self->{socket};
	return;
}

1;
