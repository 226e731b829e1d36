/*
 * reading/version.c
 *	  Bytes of a version, wherever they still are: in its row, or in the pin.
 */
#include "reading/version.h"

#include <errno.h>
#include <string.h>

#include "common/errors.h"
#include "sources/pins.h"

/* After a crash of the server pins are gone.  If the row still has the version, pin it again. */
static void
renew_pin(struct source *source, struct node *node)
{
	uint64_t	epoch = pins_epoch(source);
	int64_t		pin;

	pthread_mutex_lock(&node->lock);
	pin = node->pin_epoch != epoch ? node->pin : 0;
	node->pin_epoch = epoch;
	pthread_mutex_unlock(&node->lock);
	if (pin != 0 && source->operations->pin(source, node, pin) != 0)
		debug("node %llu: not pinned again", (unsigned long long) node->id);
}

static int
read_anywhere(struct source *source, struct node *node, int64_t offset, size_t length,
			  struct buffer *buffer)
{
	bool		replaced;
	bool		pinned;
	int			error = ESTALE;

	pthread_mutex_lock(&node->lock);
	replaced = node->replaced;
	pinned = node->pin != 0;
	pthread_mutex_unlock(&node->lock);
	if (!replaced || !pinned)
		error = source->operations->read(source, node, offset, length, buffer);
	if (error == 0 && pinned)
		renew_pin(source, node);
	if (error != ESTALE || !pinned)
		return error;
	error = pins_read(source, node, offset, length, buffer);
	pthread_mutex_lock(&node->lock);
	node->replaced = error == 0;
	pthread_mutex_unlock(&node->lock);
	return error;
}

int
version_read(struct source *source, struct node *node, int64_t offset, size_t length,
			 struct buffer *buffer)
{
	int			error = read_anywhere(source, node, offset, length, buffer);

	if (error != 0 || buffer->length == length)
		return error;
	message("%zu bytes at %lld of inode %llu are %zu", length, (long long) offset,
			(unsigned long long) node->attributes.ino, buffer->length);
	buffer_free(buffer);
	return EIO;
}

bool
version_is(struct node *node, const struct content_key *key)
{
	bool		has;

	pthread_mutex_lock(&node->lock);
	has = memcmp(&node->attributes.version, &key->version, sizeof(struct version)) == 0;
	pthread_mutex_unlock(&node->lock);
	return has;
}

int
version_read_keyed(struct source *source, struct node *node, const struct content_key *key,
				   int64_t offset, size_t length, struct buffer *buffer)
{
	int			error = version_read(source, node, offset, length, buffer);

	if (error != 0 || version_is(node, key))
		return error;
	buffer_free(buffer);
	return ESTALE;
}
