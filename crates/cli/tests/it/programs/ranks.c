/* An MPI job in which rank r has r + 1 times 16 MiB for a while. Ends with the code it is given. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t bytes = (size_t)(rank + 1) * (16 << 20);
    volatile char *memory = malloc(bytes);
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    printf("rank %d of %d\n", rank, size);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    free((void *)memory);
    MPI_Finalize();
    return argc > 1 ? atoi(argv[1]) : 0;
}
